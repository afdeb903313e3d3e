"""The `x-quire-*` request headers as the OpenAPI document describes them; read by `terms`."""

from typing import Any

from quire_engine.server.terms import MAX_NUMBER


def _header(name: str, description: str, **schema: object) -> dict[str, Any]:
    return {
        "name": name,
        "in": "header",
        "required": False,
        "description": description,
        "schema": schema,
    }


TERMS_HEADERS = (
    _header(
        "x-quire-priority",
        "The request's class; wins over the body's priority.",
        type="string",
        enum=["interactive", "background"],
    ),
    _header(
        "x-quire-deadline-ms",
        "The first token is due within so many milliseconds.",
        type="integer",
        minimum=1,
        maximum=MAX_NUMBER,
    ),
    _header(
        "x-quire-admit",
        "now: start in the next step or be refused; wait: have room held.",
        type="string",
        enum=["now", "wait"],
    ),
    _header(
        "x-quire-cost-hint",
        'Predicted cost: blocks=N, tokens=N, both, or {"blocks": N, "tokens": N}.',
        type="string",
    ),
    _header(
        "x-quire-prefix",
        "Hashes of the prompt's parts, 8 to 64 hexadecimal digits each, with commas between.",
        type="string",
    ),
    _header("x-quire-gateway", "Name and request counter of a gateway: NAME;N.", type="string"),
    _header(
        "x-quire-salt",
        "Cached prefixes are shared between requests of equal salt only.",
        type="string",
        pattern="^[!-~]{1,256}$",
    ),
)
