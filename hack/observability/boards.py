"""The dashboards: which panels stand where."""

from hack.observability import engine_panels as engine
from hack.observability import gateway_panels as gateway
from hack.observability import operator_panels as operator
from hack.observability import scaling_panels as scaling
from hack.observability.panels import Board

BOARDS = (
    Board(
        "blocks",
        "quire: KV blocks",
        "quire_blocks_capacity",
        (
            ("Room", (engine.BLOCKS, engine.SHARES, engine.PRESSURE, engine.ADMISSION)),
            ("Work", (engine.ENGINE_QUEUE, engine.TOKENS, engine.STEPS, engine.PREFIXES)),
            ("Latency", (engine.FIRST_TOKEN, engine.PACE, engine.PREEMPTIONS, engine.RECOMPUTED)),
        ),
    ),
    Board(
        "services",
        "quire: services and scaling",
        "quire_operator_service_ready",
        (
            ("Replicas", (operator.READY, operator.REPLICAS, scaling.WANTED, scaling.COST)),
            ("Demand", (gateway.ARRIVALS, gateway.QUEUE, gateway.PROMISES, engine.PRESSURE)),
            ("Scaling", (scaling.PRESSURE, scaling.LOAD, scaling.TRAFFIC, scaling.DECISIONS)),
            ("What it is decided from", (scaling.FINDINGS, scaling.INPUTS, scaling.HEARD)),
        ),
        scaling.MARKS,
    ),
    Board(
        "gateway",
        "quire: gateway",
        "quire_gateway_arrivals_total",
        (
            ("Requests", (gateway.ARRIVALS, gateway.ANSWERS, gateway.REFUSALS, gateway.FAILURES)),
            ("Time", (gateway.FIRST_BYTE, gateway.WHOLE, gateway.PROMISES, gateway.QUEUE)),
            (
                "Engines and keys",
                (
                    gateway.IN_FLIGHT,
                    gateway.ENGINES,
                    gateway.KEYS,
                    gateway.KEY_TOKENS,
                    gateway.ROUTING,
                ),
            ),
        ),
    ),
    Board(
        "operator",
        "quire: operator",
        "quire_operator_service_ready",
        (
            (
                "Operator",
                (
                    operator.LEADER,
                    operator.LOOKS,
                    operator.WRITES,
                    operator.LOOK_FAILURES,
                    operator.LENGTH,
                    scaling.DECIDING,
                ),
            ),
        ),
    ),
)
"""All of them; `name` is the file's."""
