"""`POST /v1/chat/completions`."""

import msgspec
from fastapi import APIRouter, Request, Response

from quire_engine.server.body import read_json
from quire_engine.server.openapi import ERRORS_OF_GENERATION, describe
from quire_engine.server.prompts import encode_conversation
from quire_engine.server.routes.conversation import write_chat
from quire_engine.server.routes.generate import check_request, respond
from quire_engine.server.schemas.chat import ChatChunk, ChatRequest, ChatResponse
from quire_engine.server.service import Service
from quire_engine.server.terms import read_terms
from quire_engine.server.terms_headers import TERMS_HEADERS
from quire_engine.server.tools.answer import make_answer
from quire_engine.server.tools.use import choose_use


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
        service.check_open()
        terms = read_terms(http.headers)
        with service.arrivals.until_sent(terms.gateway, terms.gateway_counter):
            request = await read_json(http, decoder, service.config.server.max_body_bytes)
            check_request(service, request, terms)
            use = choose_use(request, service.tool_setup, service.tokenizer)
            wanted = use.grammar(request.grammar_spec()) if use else request.grammar_spec()
            grammar = await service.prepare_grammar(wanted)
            told = request.tools or () if use else ()
            prompt, reasoning = await write_chat(service, request, told)
            if grammar is not None:  # it has no room for a reasoning
                reasoning = None
            answer = make_answer(
                request, service.tokenizer.spelling, use, splits_reasoning=reasoning is not None
            )
            return respond(
                service,
                request,
                answer,
                terms,
                [await encode_conversation(service.tokenizer, prompt)],
                prompt_parameter="messages",
                wanted_tokens=request.wanted_tokens(),
                grammar=grammar,
                reasoning=reasoning,
                control_tokens=use.control_tokens if use else None,
            )

    return router
