"""Where a request goes while nobody decides: to the engine that is least loaded.

By the last loads that were published, and by what was sent there since. Engines have the last word
as ever: they are told that the request may wait there.
"""

from collections.abc import Callable, Collection, Iterable, Mapping

from quire_gateway.workers.snapshot import EngineLoad


def choose_least_loaded(
    engines: Iterable[EngineLoad],
    num_sent: Mapping[str, int],
    without: Collection[str],
    chance: Callable[[], float],
) -> str | None:
    """Return an engine's address; None if none takes requests.

    Parameters
    ----------
    num_sent
        Requests that were sent there without the published loads knowing of it.
    without
        Addresses of engines that failed on the request.
    """
    able = [
        (one.load + num_sent.get(one.address, 0) * one.load_per_request, chance(), one.address)
        for one in engines
        if one.is_eligible and one.address not in without
    ]
    return min(able)[2] if able else None
