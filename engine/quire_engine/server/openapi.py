"""The OpenAPI document, generated from the very structs that decode and encode the bodies."""

from collections.abc import Sequence
from typing import Any

import msgspec
from fastapi import FastAPI
from fastapi.openapi.utils import get_openapi

from quire_engine import __version__
from quire_engine.server.access import OPEN_PATHS
from quire_engine.server.errors import ErrorBody

_REFERENCE = "#/components/schemas/{name}"
_ERRORS = {
    400: "The request is not valid; the message names the parameter.",
    404: "The model does not exist here.",
    408: "The body did not come in time.",
    409: "That is not possible now.",
    413: "The body is too large.",
    429: "There is no room in time; try again after Retry-After.",
    500: "The engine failed on this request.",
    503: "Loading, restarting, draining or shutting down; try again after Retry-After.",
    504: "The request did not end in time.",
}
_REFUSALS = {
    "401": "A key is asked for, or the internal token.",
    "403": "Without a token file it is for the server's own machine, and for no other site's page.",
}
ERRORS_OF_BODIES = (400, 408, 413, 503)
"""What any route answers that reads a body."""
ERRORS_OF_GENERATION = (400, 404, 408, 413, 429, 500, 503, 504)
_RETRY_HEADERS = {
    "Retry-After": {
        "description": "Whole seconds until the next try.",
        "schema": {"type": "integer", "minimum": 1, "maximum": 60},
    },
    "retry-after-ms": {
        "description": "The same in milliseconds.",
        "schema": {"type": "integer", "minimum": 1},
    },
}
_WITH_RETRY = (429, 503)


def describe(
    *,
    body: type[msgspec.Struct] | None = None,
    answer: type[msgspec.Struct] | None = None,
    event: type[msgspec.Struct] | None = None,
    text: str | None = None,
    is_body_needed: bool = True,
    statuses: Sequence[int] = (200,),
    errors: Sequence[int] = (),
    headers: Sequence[dict[str, Any]] = (),
) -> dict[str, Any]:
    """Keyword arguments of a route's decorator that describe what it takes and gives.

    Parameters
    ----------
    body, answer
        Structs of the request's and the response's JSON.
    event
        Struct of each event of a stream.
    text
        Description of a plain text response.
    is_body_needed
        Whether there is no request without a body.
    statuses
        Those that come with the answer.
    errors
        Those that come with an error's body.
    headers
        OpenAPI's description of the request's headers.
    """
    content: dict[str, Any] = {}
    if answer is not None:
        content["application/json"] = {"schema": _refer(answer)}
    if event is not None:
        content["text/event-stream"] = {"schema": _refer(event)}
    if text is not None:
        content["text/plain"] = {"schema": {"type": "string", "description": text}}
    responses: dict[int | str, Any] = {
        status: {"description": "Success" if status == 200 else "Not now.", "content": content}
        for status in statuses
    }
    error = {"application/json": {"schema": _refer(ErrorBody)}}
    for status in errors:
        responses[status] = {"description": _ERRORS[status], "content": error}
        if status in _WITH_RETRY:
            responses[status]["headers"] = _RETRY_HEADERS
    extra: dict[str, Any] = {}
    if body is not None:
        content = {"application/json": {"schema": _refer(body)}}
        extra["requestBody"] = {"required": is_body_needed, "content": content}
    if headers:
        extra["parameters"] = list(headers)
    return {"responses": responses, "openapi_extra": extra}


def install_openapi(
    app: FastAPI, structs: Sequence[type[msgspec.Struct]], model_names: Sequence[str]
) -> None:
    """Make `app` serve a document whose schemas are those of `structs`.

    Parameters
    ----------
    model_names
        What requests may put in "model".
    """

    def build() -> dict[str, Any]:
        if app.openapi_schema is None:
            document = get_openapi(
                title="quire",
                version=__version__,
                summary="OpenAI's API on exactly counted KV blocks.",
                routes=app.routes,
            )
            _, schemas = msgspec.json.schema_components(structs, ref_template=_REFERENCE)
            for schema in schemas.values():
                if {"model", "stream"} <= schema.get("properties", {}).keys():
                    schema["properties"]["model"]["enum"] = list(model_names)
            document.setdefault("components", {}).setdefault("schemas", {}).update(schemas)
            _describe_access(document)
            app.openapi_schema = document
        return app.openapi_schema

    app.openapi = build  # type: ignore[method-assign]


def _describe_access(document: dict[str, Any]) -> None:
    """Say which routes ask for a key or the internal token, where there are any."""
    document["components"]["securitySchemes"] = {"bearer": {"type": "http", "scheme": "bearer"}}
    document["security"] = [{"bearer": []}, {}]
    error = {"application/json": {"schema": _refer(ErrorBody)}}
    for path, operations in document["paths"].items():
        for operation in operations.values():
            if path in OPEN_PATHS:
                operation["security"] = []
                continue
            for status, reason in _REFUSALS.items():
                operation["responses"][status] = {"description": reason, "content": error}


def _refer(struct: type[msgspec.Struct]) -> dict[str, str]:
    return {"$ref": _REFERENCE.format(name=struct.__name__)}
