"""From parsed flags to what is simulated, and what to say about it."""

import argparse
from collections.abc import Sequence

from quire_engine.errors import ConfigError
from quire_local.simulate.faults import GATEWAYS
from quire_local.simulate.flags import limits_of, max_model_len_of, slo_of, types_of, workload_of
from quire_local.simulate.promises import check_promises
from quire_local.simulate.remarks import remark_on
from quire_local.simulate.scalers.choosing import Makers
from quire_local.simulate.simulation import Scenario
from quire_local.simulate.workload import Workload, check_length


def scenario_of(parsed: argparse.Namespace) -> tuple[Scenario, Workload, list[str]]:
    """What is simulated, of which traffic, and what to say about it.

    Raises
    ------
    ConfigError
        The flags contradict each other, the traffic cannot be read, or no GPU keeps the promises
        for any request of it.
    """
    if parsed.min_replicas > parsed.max_replicas:
        raise ConfigError("--min-replicas is more than --max-replicas: lower it or raise the other")
    max_model_len, slo, limits = max_model_len_of(parsed), slo_of(parsed), limits_of(parsed)
    types, remarks = types_of(parsed, max_model_len=max_model_len, spot_hours=parsed.spot)
    _check_names(parsed, [one.name for one in types], remarks)
    workload = workload_of(parsed, max_model_len)
    check_length(workload)
    check_promises(workload, types, slo, limits)
    remarks += [*workload.remarks, *remark_on(parsed, types, workload)]
    scenario = Scenario(
        trace=workload.trace,
        types=types,
        max_model_len=max_model_len,
        slo=slo,
        limits=limits,
        max_tokens=parsed.max_tokens,
        num_gateways=parsed.gateways,
        fail_hours=parsed.fail_hours,
        events=tuple(parsed.event),
        seed=parsed.seed,
    )
    return scenario, workload, remarks


def makers_of(parsed: argparse.Namespace, scenario: Scenario) -> Makers:
    """Makes the scalers that the flags describe."""
    return Makers(
        scenario=scenario,
        fixed=parsed.fixed,
        min_replicas=parsed.min_replicas,
        max_replicas=parsed.max_replicas,
        max_dollars_per_hour=parsed.max_cost_per_hour,
        forgets_after=parsed.restart_operator,
    )


def _check_names(parsed: argparse.Namespace, known: Sequence[str], remarks: Sequence[str]) -> None:
    """Raise ConfigError where a flag names a type that is not simulated, and say why."""
    for flag, named in (
        ("--spot", list(parsed.spot)),
        ("--event", [e.engine_type for e in parsed.event if e.engine_type != GATEWAYS]),
        ("--fixed", list(parsed.fixed)),
    ):
        unknown = [name for name in named if name not in known]
        if unknown:
            raise ConfigError(
                f"{flag} names {', '.join(unknown)}, which does not serve here: there are"
                f" {', '.join(known)}"
                + "".join(f"; {one}" for one in remarks if one.split()[0] in unknown)
            )
