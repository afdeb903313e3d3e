"""`POST /v1/chat/completions`."""

import msgspec
from fastapi import APIRouter, Request, Response

from quire_engine.server.body import read_json
from quire_engine.server.openapi import ERRORS_OF_GENERATION, describe
from quire_engine.server.prompts import encode_conversation
from quire_engine.server.routes.conversation import prepare_chat
from quire_engine.server.routes.generate import check_request, respond, take_request
from quire_engine.server.schemas.chat import ChatChunk, ChatRequest, ChatResponse
from quire_engine.server.service import Service
from quire_engine.server.terms_headers import TERMS_HEADERS
from quire_engine.server.tools.answer import make_answer


def build(service: Service) -> APIRouter:
    """The route of chat completions."""
    router = APIRouter(tags=["generation"])
    decoder = msgspec.json.Decoder(ChatRequest)

    @router.post(
        "/v1/chat/completions",
        summary="Continue a conversation",
        **describe(
            body=ChatRequest,
            answer=ChatResponse,
            event=ChatChunk,
            errors=ERRORS_OF_GENERATION,
            headers=TERMS_HEADERS,
        ),
    )
    async def create_chat_completion(http: Request) -> Response:
        async with take_request(service, http) as terms:
            request = await read_json(http, decoder, service.config.server.max_body_bytes)
            check_request(service, request, terms)
            chat = await prepare_chat(service, request)
            answer = make_answer(
                request,
                service.tokenizer.spelling,
                chat.use,
                splits_reasoning=chat.reasoning is not None,
            )
            return respond(
                service,
                request,
                answer,
                terms,
                [await encode_conversation(service.tokenizer, chat.prompt)],
                prompt_parameter="messages",
                wanted_tokens=request.wanted_tokens(),
                grammar=chat.grammar,
                reasoning=chat.reasoning,
                control_tokens=chat.use.control_tokens if chat.use else None,
            )

    return router
