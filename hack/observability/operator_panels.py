"""Panels of what the operator says of services and of itself."""

from hack.observability.panels import HERE, WINDOW, Panel, Query, rate

READY = Panel(
    "Services that are ready",
    "none",
    "As their condition Ready says.",
    (Query(f"max by (service) (quire_operator_service_ready{{{HERE}}})", "{{service}}"),),
)
REPLICAS = Panel(
    "Replicas by accelerator",
    "none",
    "Those that are ready.",
    (
        Query(
            "max by (service, accelerator)"
            f' (quire_operator_service_replicas{{{HERE}, state="ready"}})',
            "{{service}} {{accelerator}}",
        ),
    ),
    "stacked",
)
LEADER = Panel(
    "Leader",
    "none",
    "One replica acts.",
    (Query("max by (pod) (quire_operator_is_leader)", "{{pod}}"),),
)
LOOKS = Panel(
    "Time of one look at a service",
    "s",
    "From what was seen to what was written.",
    tuple(
        Query(
            f"histogram_quantile({share}, sum by (le)"
            f" (rate(quire_operator_reconcile_seconds_bucket{WINDOW})))",
            f"p{share * 100:g}",
        )
        for share in (0.5, 0.95)
    ),
)
WRITES = Panel(
    "Looks, and objects written",
    "cps",
    "Per second. Where nothing changes, nothing is written.",
    (
        Query(f"sum(rate(quire_operator_reconcile_seconds_count{WINDOW}))", "looks"),
        Query(f"sum(rate(quire_operator_writes_total{WINDOW}))", "objects"),
    ),
)
LOOK_FAILURES = Panel(
    "Looks that failed",
    "cps",
    "Per second; they are tried again.",
    (Query(rate("quire_operator_reconcile_failures_total", "service"), "{{service}}"),),
)
LENGTH = Panel(
    "Services that wait for a look",
    "none",
    "In the leader.",
    (Query("max(quire_operator_queue_length)", "services"),),
)
