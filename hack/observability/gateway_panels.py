"""Panels of what gateways say of themselves."""

from hack.observability.panels import IDLE, READY, Panel, Query, of_gateways, rate, tail, total

_KEPT = ', kept="yes"'

ARRIVALS = Panel(
    "Arrivals",
    "reqps",
    "Requests that keys allow, and those that clients' libraries sent again by themselves.",
    (
        Query(rate("quire_gateway_arrivals_total", "service"), "{{service}}"),
        Query(rate("quire_gateway_client_retries_total", "service"), "{{service}} again"),
    ),
)
ANSWERS = Panel(
    "Answers by status",
    "reqps",
    "0: the client left before. Without a service: no key, or no model that is known.",
    (Query(rate("quire_gateway_requests_total", "service, status"), "{{service}} {{status}}"),),
    "stacked",
)
REFUSALS = Panel(
    "Refusals by reason",
    "reqps",
    "Requests that the gateway refused. Without a service: no key, or no model that is known.",
    (Query(rate("quire_gateway_refusals_total", "service, reason"), "{{service}} {{reason}}"),),
    "stacked",
)
FAILURES = Panel(
    "Attempts on which engines failed",
    "reqps",
    "And after how many of these another engine was tried.",
    (
        Query(
            rate("quire_gateway_engine_failures_total", "service, reason"),
            "{{service}} {{reason}}",
        ),
        Query(rate("quire_gateway_retries_total", "service"), "{{service}} tried elsewhere"),
    ),
)
FIRST_BYTE = Panel(
    "Time to the first byte",
    "s",
    "From a request's arrival at the gateway, its wait for an engine included.",
    tail("quire_gateway_first_byte_seconds"),
)
WHOLE = Panel(
    "Time to the end of the answer",
    "s",
    "From a request's arrival at the gateway.",
    tail("quire_gateway_request_seconds"),
)
PROMISES = Panel(
    "Promises kept",
    "percentunit",
    "Of interactive streams: the first token, and the pace, as the service's SLO promises.",
    (
        Query(
            f"{rate('quire_gateway_promises_total', 'service, promise', _KEPT)} / "
            f"{rate('quire_gateway_promises_total', 'service, promise')}",
            "{{service}} {{promise}}",
        ),
    ),
)
QUEUE = Panel(
    "Requests that wait for an engine",
    "none",
    "By priority.",
    (
        Query(
            total("quire_gateway_queued_requests", "service, priority"), "{{service}} {{priority}}"
        ),
    ),
    "stacked",
)
IN_FLIGHT = Panel(
    "Requests at engines",
    "none",
    "Of all gateways together.",
    (Query(total("quire_gateway_in_flight_requests", "service"), "{{service}}"),),
    "stacked",
)
ENGINES = Panel(
    "Engines",
    "none",
    "By whether requests go there.",
    tuple(
        Query(
            of_gateways("quire_gateway_engines", "service", f', eligible="{value}"'),
            f"{{{{service}}}} {words}",
            colour,
        )
        for value, words, colour in (("yes", "eligible", READY), ("no", "not eligible", IDLE))
    ),
    "stacked",
)
KEYS = Panel(
    "Requests by key",
    "reqps",
    "By the key's name.",
    (Query(rate("quire_gateway_key_requests_total", "service, key"), "{{service}} {{key}}"),),
    "stacked",
)
KEY_TOKENS = Panel(
    "Tokens by key",
    "cps",
    "Per second, of prompts and answers.",
    (
        Query(
            rate("quire_gateway_key_tokens_total", "service, key, kind"),
            "{{service}} {{key}} {{kind}}",
        ),
    ),
    "stacked",
)
ROUTING = Panel(
    "Routing",
    "none",
    "Whether services and engines can be followed, and whether a document cannot be used.",
    (
        Query("min(quire_gateway_routing_source_up)", "source is up"),
        Query("max(quire_gateway_routing_stale)", "a document is stale"),
    ),
)
