"""Prompts as the two APIs without conversations take them: one or several, texts or token ids."""

from quire_engine.errors import RequestError

Prompts = list[str | list[int]]


def read_prompts(
    given: str | list[int | str | list[int]], parameter: str, max_prompts: int | None = None
) -> Prompts:
    """Return the prompts, each a text or token ids.

    Raises
    ------
    RequestError
        There is none, one is empty, there are too many, or texts and ids are mixed.
    """
    if not given:
        raise _refuse(parameter, "must not be empty")
    if isinstance(given, str):
        return [given]
    if all(isinstance(item, int) for item in given):
        return [given]  # type: ignore[list-item]
    if any(isinstance(item, int) for item in given):
        raise _refuse(parameter, "token ids and prompts cannot be mixed in one list")
    if max_prompts is not None and len(given) > max_prompts:
        raise _refuse(parameter, f"{len(given)} are more than {max_prompts}; send several requests")
    if not all(given):
        raise _refuse(parameter, "must not be empty, nor any of several")
    return given  # type: ignore[return-value]


def _refuse(parameter: str, reason: str) -> RequestError:
    return RequestError(f"{parameter}: {reason}", parameter=parameter)
