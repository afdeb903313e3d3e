"""Panels of what scaling decides, and from what."""

from hack.observability.panels import HERE, IDLE, READY, WINDOW, Panel, Query

_SCALING = "quire_operator_scaling_"


def _newest(series: str, by: str, more: str = "") -> str:
    """A gauge of the operator's leader: only one replica has it."""
    return f"max by ({by}) ({series}{{{HERE}{more}}})"


def _replicas(state: str) -> str:
    return _newest("quire_operator_service_replicas", "service, accelerator", f', state="{state}"')


WANTED = Panel(
    "Replicas wanted, asked for and ready",
    "none",
    "Wanted: by the cheapest mix that carries the traffic. Asked for: by now, one step at a time.",
    (
        Query(
            _newest(f"{_SCALING}wanted_replicas", "service, accelerator"),
            "{{service}} {{accelerator}} wanted",
        ),
        Query(_replicas("desired"), "{{service}} {{accelerator}} asked for"),
        Query(_replicas("ready"), "{{service}} {{accelerator}} ready"),
    ),
)
PRESSURE = Panel(
    "Pressure of the fleet, by what binds",
    "percentunit",
    "Mean of the ready replicas; at 100 % they refuse. One series at a time: the term that binds.",
    (Query(_newest(f"{_SCALING}pressure", "service, term"), "{{service}} {{term}}"),),
    edge=1,
)
LOAD = Panel(
    "Planned load",
    "percentunit",
    "Of the replicas that there are and that come; at 100 % they carry as much as"
    " memoryPressure.target allows.",
    (Query(_newest(f"{_SCALING}load", "service, accelerator"), "{{service}} {{accelerator}}"),),
    edge=1,
)
TRAFFIC = Panel(
    "Requests seen, and what is wanted can carry",
    "reqps",
    "Each accelerator counted as if it had the whole mix of lengths: shared by length they carry"
    " more.",
    (
        Query(_newest(f"{_SCALING}requests_per_second", "service"), "{{service}} seen"),
        Query(
            "sum by (service) ("
            + _newest(f"{_SCALING}wanted_replicas", "service, accelerator")
            + " * "
            + _newest(f"{_SCALING}replica_requests_per_second", "service, accelerator")
            + ")",
            "{{service}} can be carried",
        ),
    ),
)
COST = Panel(
    "Cost per hour",
    "currencyUSD",
    "Of replicas that are asked for: a node costs from when it is there.",
    (
        Query(
            f"{_replicas('desired')} * "
            + _newest(f"{_SCALING}replica_cost_per_hour", "service, accelerator"),
            "{{service}} {{accelerator}}",
        ),
    ),
    "stacked",
)
DECISIONS = Panel(
    "Decisions by what they did",
    "none",
    "In each interval. Most are Hold, which is not shown; the event Scaled has each one's reason.",
    (
        Query(
            "sum by (service, action)"
            f' (increase({_SCALING}decisions_total{{{HERE}, action!="Hold"}}{WINDOW}))',
            "{{service}} {{action}}",
        ),
    ),
    "stacked",
)
FINDINGS = Panel(
    "What stands in the way",
    "none",
    "1 while it does, as the condition ScalingActive has it: bounds too low (Infeasible), no node"
    " in time (ShortOfGpus), figures missing (MetricsStale), and so on. Empty: nothing does.",
    (Query(_newest(f"{_SCALING}finding", "service, code"), "{{service}} {{code}}"),),
)
INPUTS = Panel(
    "Age of the oldest input",
    "s",
    "Of what gateways and ready replicas told. What is older than 20 s is not used, and nothing is"
    " taken away meanwhile.",
    (Query(_newest(f"{_SCALING}oldest_input_seconds", "service"), "{{service}}"),),
    edge=20,
)
HEARD = Panel(
    "Gateways that scaling hears",
    "none",
    "Those that ever answered, and those that did not.",
    tuple(
        Query(f'max({_SCALING}gateways{{heard="{value}"}})', words, colour)
        for value, words, colour in (("yes", "heard", READY), ("no", "not heard", IDLE))
    ),
    "stacked",
)
DECIDING = Panel(
    "Time to decide all services",
    "s",
    "On a thread of its own; it is done every --scale-seconds.",
    tuple(
        Query(
            f"histogram_quantile({share}, sum by (le)"
            f" (rate({_SCALING}decide_seconds_bucket{WINDOW})))",
            f"p{share * 100:g}",
        )
        for share in (0.5, 0.95)
    ),
)
MARKS = (
    "sum by (service, action)"
    f' (changes({_SCALING}decisions_total{{{HERE}, action!="Hold"}}{WINDOW})) > 0'
)
"""Decisions, as marks over all panels."""
