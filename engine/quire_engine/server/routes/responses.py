"""`POST /v1/responses`: a chat completion in other words."""

import re
from collections.abc import Iterator
from contextlib import contextmanager

import msgspec
from fastapi import APIRouter, Request, Response

from quire_engine.errors import RequestError
from quire_engine.server.body import read_json
from quire_engine.server.openapi import ERRORS_OF_GENERATION, describe
from quire_engine.server.prompts import encode_conversation
from quire_engine.server.responses import ResponsesAnswer
from quire_engine.server.routes.conversation import prepare_chat
from quire_engine.server.routes.generate import check_request, respond, take_request
from quire_engine.server.schemas.response_objects import ResponseObject, ResponseStreamEvent
from quire_engine.server.schemas.responses import ResponsesRequest
from quire_engine.server.service import Service
from quire_engine.server.terms_headers import TERMS_HEADERS

_OWN_NAMES = {
    "messages": "input",
    "max_tokens": "max_output_tokens",
    "reasoning_effort": "reasoning.effort",
    "response_format": "text.format",
}
_OF_FUNCTION = re.compile(r"^(tools\[\d+\])\.function\b")
"""Where this route has what the chat's has in a tool's field `function`."""


def build(service: Service) -> APIRouter:
    """The route of responses."""
    router = APIRouter(tags=["generation"])
    decoder = msgspec.json.Decoder(ResponsesRequest)

    @router.post(
        "/v1/responses",
        summary="Answer a text or a conversation",
        **describe(
            body=ResponsesRequest,
            answer=ResponseObject,
            event=ResponseStreamEvent,
            errors=ERRORS_OF_GENERATION,
            headers=TERMS_HEADERS,
        ),
    )
    async def create_response(http: Request) -> Response:
        async with take_request(service, http) as terms:
            with _own_names():
                request = await read_json(http, decoder, service.config.server.max_body_bytes)
                service.check_model(request.model)
                chat = request.to_chat()
                check_request(service, chat, terms)
                ready = await prepare_chat(service, chat)
                return respond(
                    service,
                    chat,
                    ResponsesAnswer(request, chat, ready.use),
                    terms,
                    [await encode_conversation(service.tokenizer, ready.prompt)],
                    prompt_parameter="input",
                    wanted_tokens=chat.wanted_tokens(),
                    grammar=ready.grammar,
                    reasoning=ready.reasoning,
                    control_tokens=ready.use.control_tokens if ready.use else None,
                )

    return router


@contextmanager
def _own_names() -> Iterator[None]:
    """Let errors name the parameters of this route, and not those of the chat's."""
    try:
        yield
    except RequestError as error:
        name = error.parameter or ""
        own = _OWN_NAMES.get(name) or _OF_FUNCTION.sub(r"\1", name)
        if own == name:
            raise
        message = str(error)
        if message.startswith(f"{name}:"):
            message = own + message.removeprefix(name)
        raise type(error)(message, parameter=own) from None
