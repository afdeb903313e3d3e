"""`POST /tokenize` and `POST /detokenize`."""

import asyncio

import msgspec
from fastapi import APIRouter, Request, Response

from quire_engine.errors import RequestError
from quire_engine.server.answers import json_response
from quire_engine.server.body import read_json
from quire_engine.server.openapi import ERRORS_OF_BODIES, describe
from quire_engine.server.prompts import (
    encode_conversation,
    encode_text,
    write_conversation,
)
from quire_engine.server.schemas.tokens import (
    DetokenizeRequest,
    DetokenizeResponse,
    TokenizeRequest,
    TokenizeResponse,
)
from quire_engine.server.service import Service
from quire_engine.server.templates import choose_template
from quire_engine.server.tools.checks import check_tools

_ERRORS = (*ERRORS_OF_BODIES, 404)


def build(service: Service) -> APIRouter:
    """The routes of the tokenizer by itself."""
    router = APIRouter(tags=["tokens"])
    tokenize_decoder = msgspec.json.Decoder(TokenizeRequest)
    detokenize_decoder = msgspec.json.Decoder(DetokenizeRequest)
    max_bytes = service.config.server.max_body_bytes

    @router.post(
        "/tokenize",
        summary="Cut a text or a conversation into tokens",
        **describe(body=TokenizeRequest, answer=TokenizeResponse, errors=_ERRORS),
    )
    async def tokenize(http: Request) -> Response:
        request = await read_json(http, tokenize_decoder, max_bytes)
        _check_model(service, request.model)
        request.check()
        token_ids = await _tokenize(service, request)
        spelling = service.tokenizer.spelling
        response = TokenizeResponse(
            count=len(token_ids),
            max_model_len=service.facts.max_model_len,
            tokens=token_ids,
            token_strs=(
                [spelling.text_of(token_id) for token_id in token_ids]
                if request.return_token_strs
                else None
            ),
        )
        return json_response(response)

    @router.post(
        "/detokenize",
        summary="Make text of tokens",
        **describe(body=DetokenizeRequest, answer=DetokenizeResponse, errors=_ERRORS),
    )
    async def detokenize(http: Request) -> Response:
        request = await read_json(http, detokenize_decoder, max_bytes)
        _check_model(service, request.model)
        largest = max(request.tokens, default=0)
        if largest >= service.facts.vocab_size:
            raise RequestError(
                f"tokens: token id {largest} is outside the vocabulary of"
                f" {service.facts.vocab_size}",
                parameter="tokens",
            )
        tokenizer = service.tokenizer
        text = await asyncio.to_thread(tokenizer.decode, request.tokens, skip_special_tokens=False)
        return json_response(DetokenizeResponse(prompt=text))

    return router


def _check_model(service: Service, name: str | None) -> None:
    if name is not None:
        service.check_model(name)


async def _tokenize(service: Service, request: TokenizeRequest) -> list[int]:
    tokenizer, facts = service.tokenizer, service.facts
    check_tools(request.messages or (), request.tools or ())
    if request.messages is not None:
        trusts = service.config.model.trust_request_chat_template
        text = await write_conversation(
            tokenizer,
            service.renderer,
            request.messages,
            choose_template(request, trusts_templates=trusts),
            facts,
            tools=request.tools or (),
            tool_setup=service.tool_setup,
        )
        adds = bool(request.add_special_tokens)
        return await encode_conversation(tokenizer, text, add_special_tokens=adds)
    adds = request.add_special_tokens is not False
    return await encode_text(tokenizer, request.prompt or "", facts, add_special_tokens=adds)
