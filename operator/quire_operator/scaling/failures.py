"""Which accelerators' replicas fail before any of them is ready, and how long none is added for it.

failed     one cannot start, or ends again and again, and none of the accelerator's serves
doubled    with each try that fails: each may buy a node
forgotten  when one is ready, and when what pods are made of is something else; where nothing else
           serves or will, and no other can be added, it is tried sooner: `decide` sees to that
"""

from collections.abc import Collection, Mapping
from dataclasses import replace

from quire_operator.scaling.decision import Failure
from quire_operator.scaling.fleet import is_there, serves
from quire_operator.scaling.inputs import AcceleratorInputs, ServiceInputs
from quire_operator.scaling.retrying import pause

_FIRST_SECONDS = 600.0
"""As long as a shortage is remembered: what ends a registry's or a node's trouble takes minutes."""


def find(service: ServiceInputs, known: Mapping[str, Failure], now: float) -> dict[str, Failure]:
    """Failures of each accelerator that has some."""
    if service.is_suspended:
        return {}
    found = {
        one.name: _look(service, one, known.get(one.name), now) for one in service.accelerators
    }
    return {name: one for name, one in found.items() if one is not None}


def avoided(failures: Mapping[str, Failure], now: float) -> frozenset[str]:
    """Accelerators of which none is to be added now."""
    return frozenset(name for name, one in failures.items() if now < one.until)


def pardon(failures: Mapping[str, Failure], now: float) -> dict[str, Failure]:
    """Let those be tried of which no replica is there: the next failure counts on.

    At once, unless others fail that are there, and that kubelets try again: then as soon as after
    the first failure, or two that have room for one replica would take turns in each round.
    """
    after_seconds = _FIRST_SECONDS if any(one.replicas for one in failures.values()) else 0.0
    return {
        name: replace(one, until=min(one.until, now))
        if not one.replicas and now - _began_at(one) >= after_seconds
        else one
        for name, one in failures.items()
    }


def _began_at(failure: Failure) -> float:
    """When its last try failed, or before."""
    return failure.until - pause(_FIRST_SECONDS, failure.num_tries)


def set_back(failures: Mapping[str, Failure], now: float) -> dict[str, Failure]:
    """The same where the clock was set back."""
    return {
        name: replace(one, until=min(one.until, now + pause(_FIRST_SECONDS, one.num_tries)))
        for name, one in failures.items()
    }


def _look(
    service: ServiceInputs, accelerator: AcceleratorInputs, known: Failure | None, now: float
) -> Failure | None:
    there = [one for one in service.replicas if is_there(one, accelerator.name)]
    if any(serves(one) for one in there):
        return None
    failing = frozenset(one.name for one in there if one.is_failing)
    if known is None:
        return _begin(1, accelerator, failing, now) if failing else None
    counted = known.replicas & {one.name for one in there}
    if known.made_of != accelerator.made_of:
        # what is there may be of the old settings yet: nothing is known of the new ones
        anew = replace(known, num_tries=0, until=now, made_of=accelerator.made_of)
        return replace(anew, replicas=counted) if counted else None
    if failing <= counted:
        return replace(known, replicas=counted)
    if now >= known.until:
        return _begin(known.num_tries + 1, accelerator, failing, now)
    return replace(known, replicas=counted | failing)  # of the same try


def _begin(
    num_tries: int, accelerator: AcceleratorInputs, failing: Collection[str], now: float
) -> Failure:
    return Failure(
        num_tries=num_tries,
        until=now + pause(_FIRST_SECONDS, num_tries),
        made_of=accelerator.made_of,
        replicas=frozenset(failing),
    )
