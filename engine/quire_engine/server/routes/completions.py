"""`POST /v1/completions`."""

import msgspec
from fastapi import APIRouter, Request, Response

from quire_engine.server.answers import CompletionAnswer
from quire_engine.server.body import read_json
from quire_engine.server.openapi import ERRORS_OF_GENERATION, describe
from quire_engine.server.prompts import echo_texts, tokenize_prompts
from quire_engine.server.routes.generate import check_request, respond, take_request
from quire_engine.server.schemas.completions import CompletionRequest, CompletionResponse
from quire_engine.server.service import Service
from quire_engine.server.terms_headers import TERMS_HEADERS


def build(service: Service) -> APIRouter:
    """The route of text completions."""
    router = APIRouter(tags=["generation"])
    decoder = msgspec.json.Decoder(CompletionRequest)

    @router.post(
        "/v1/completions",
        summary="Continue a text",
        **describe(
            body=CompletionRequest,
            answer=CompletionResponse,
            event=CompletionResponse,
            errors=ERRORS_OF_GENERATION,
            headers=TERMS_HEADERS,
        ),
    )
    async def create_completion(http: Request) -> Response:
        async with take_request(service, http) as terms:
            request = await read_json(http, decoder, service.config.server.max_body_bytes)
            check_request(service, request, terms)
            grammar = await service.prepare_grammar(request.grammar_spec())
            prompts = await tokenize_prompts(
                service.tokenizer, request.prompts(), service.facts, "prompt"
            )
            return respond(
                service,
                request,
                CompletionAnswer(request, service.tokenizer.spelling),
                terms,
                prompts,
                prompt_parameter="prompt",
                wanted_tokens=request.wanted_tokens(),
                grammar=grammar,
                echoes=echo_texts(service.tokenizer, request, prompts) if request.echo else None,
            )

    return router
