"""What a request asks for: read once, from the head and a few fields of the body.

Values of a wrong type count as absent: the engine, which knows all of them, refuses them.
"""

import re
from dataclasses import dataclass
from functools import lru_cache

import msgspec

from quire_gateway.choosing.demand import BYTES_PER_TOKEN
from quire_gateway.errors import ApiError
from quire_gateway.http.request import Request
from quire_gateway.serving.body import NULL, body_decoder
from quire_gateway.serving.random_ids import random_id

GENERATING_PATHS = frozenset(
    {"/v1/chat/completions", "/v1/completions", "/v1/responses", "/v1/embeddings"}
)
ENGINE_PATHS = GENERATING_PATHS | {"/tokenize", "/detokenize"}
DEFAULT_MAX_TOKENS = 4096
"""Of requests that name no limit: the engine's own is the rest of the model's length."""
_MAX_NUMBER = 2**53
_REQUEST_ID = re.compile(rb"[A-Za-z0-9._:/+=@-]{1,128}")
_OF_PROXIES = frozenset(
    {
        b"forwarded",
        b"via",
        b"x-forwarded-for",
        b"x-forwarded-host",
        b"x-real-ip",
        b"x-envoy-external-address",
    }
)
"""Of these an ingress controller sends one at least; clients inside a cluster send none."""


@dataclass(slots=True)
class Inquiry:
    """A request for a model."""

    path: str
    model: str
    prompt_parts: list[bytes]
    """The JSON of what the prompt is made of, in the order in which templates write it."""
    num_prompt_tokens: int
    """Estimated."""
    max_tokens: int
    num_sequences: int
    is_background: bool | None
    """None if the request does not say."""
    deadline_seconds: float | None
    """Within so long of its arrival the first token is due."""
    is_stream: bool = False


def read_inquiry(path: str, request: Request) -> Inquiry:
    """Read a request.

    Raises
    ------
    ApiError
        400: the body is not JSON, has no model, or a header of ours is malformed.
    """
    try:
        body = body_decoder.decode(request.body)
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as error:
        message = f"The body is not a JSON object: {error}."
        raise ApiError(400, message, reason="invalid_json") from None
    model = body.model
    if not isinstance(model, str):
        raise ApiError(
            400, "model: must be the name of a model.", reason="invalid_model", param="model"
        )
    written = (body.instructions, body.tools, body.messages, body.prompt, body.input)
    parts = [bytes(part) for part in written if part is not NULL and part != NULL]
    limits = (body.max_completion_tokens, body.max_tokens, body.max_output_tokens)
    generates = path in GENERATING_PATHS and path != "/v1/embeddings"
    return Inquiry(
        path=path,
        model=model,
        prompt_parts=parts,
        num_prompt_tokens=_estimate_tokens(parts),
        max_tokens=_first(limits, DEFAULT_MAX_TOKENS) if generates else 1,
        num_sequences=min(_first((body.best_of, body.n), 1), 128),
        is_background=_read_class(request, body.priority),
        deadline_seconds=_read_deadline(request),
        is_stream=body.stream is True,
    )


def request_id_of(request: Request) -> bytes:
    """Return the request's id: its own where it is fit to be logged, else a new one."""
    own = request.find(b"x-request-id")
    return own if own and _REQUEST_ID.fullmatch(own) else random_id().encode()


def is_retry(request: Request) -> bool:
    """Whether a client's library sends it again by itself, as OpenAI's say."""
    return (request.find(b"x-stainless-retry-count") or b"0") != b"0"


def bearer_of(request: Request) -> bytes | None:
    """Return the key that a client presents."""
    value = request.find(b"authorization") or b""
    scheme, _, token = value.partition(b" ")
    return token.strip() if scheme.lower() == b"bearer" and token.strip() else None


def is_proxied(request: Request) -> bool:
    """Whether a proxy passed the request on, as ingress controllers say of all that they pass."""
    return not _OF_PROXIES.isdisjoint(request.fields)


def host_of(request: Request) -> str:
    """Return the name that the client asked for: lower case, without port and the root's dot."""
    return _host_name(request.find(b"host") or b"")


@lru_cache(maxsize=1024)
def _host_name(host: bytes) -> str:
    name = host.decode("latin-1").lower()
    return name if name.endswith("]") else name.partition(":")[0].removesuffix(".")


def _read_int(value: object) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _first(values: tuple[object, ...], default: int) -> int:
    for given in values:
        if given is None:
            continue
        value = _read_int(given)
        if value is not None and 0 < value <= _MAX_NUMBER:
            return value
    return default


def _estimate_tokens(parts: list[bytes]) -> int:
    """Return the number of tokens: of lists of token ids exactly, else by the length."""
    total = 1.0
    for part in parts:
        if part[:1] == b"[" and part[1:].lstrip()[:1].isdigit():
            total += part.count(b",") + 1
        else:
            total += len(part) / BYTES_PER_TOKEN
    return int(total)


def _read_class(request: Request, of_body: object) -> bool | None:
    text = _header(request, b"x-quire-priority")
    if text is not None:
        if text not in (b"interactive", b"background"):
            raise _malformed("x-quire-priority", "interactive or background")
        return text == b"background"
    priority = _read_int(of_body)
    return None if priority is None else priority > 0


def _read_deadline(request: Request) -> float | None:
    text = _header(request, b"x-quire-deadline-ms")
    if text is None:
        return None
    if not re.fullmatch(rb"[0-9]{1,16}", text) or not 0 < int(text) <= _MAX_NUMBER:
        wanted = f"milliseconds from now, a whole number from 1 to {_MAX_NUMBER}"
        raise _malformed("x-quire-deadline-ms", wanted)
    return int(text) / 1000


def _header(request: Request, name: bytes) -> bytes | None:
    value = request.fields.get(name)
    if value is None:
        return None
    if request.has_several(name):
        raise _malformed(name.decode(), "one value")
    return value.strip()


def _malformed(name: str, wanted: str) -> ApiError:
    message = f"{name}: is malformed; it takes {wanted}."
    return ApiError(400, message, reason="invalid_header", param=name)
