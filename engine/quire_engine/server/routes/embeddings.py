"""`POST /v1/embeddings`."""

import uuid
from collections.abc import Sequence

import msgspec
from fastapi import APIRouter, Request, Response

from quire_engine.errors import RequestError
from quire_engine.protocol.messages import AddRequest
from quire_engine.protocol.sampling import SamplingParams
from quire_engine.server.body import read_json
from quire_engine.server.embedding import MAX_AT_A_TIME, EmbeddingAnswer, EmbeddingTask
from quire_engine.server.openapi import ERRORS_OF_GENERATION, describe
from quire_engine.server.prompts import check_prompt, tokenize_prompts
from quire_engine.server.routes.generate import check_cost_hint, note_gateway, take_request
from quire_engine.server.schemas.embeddings import EmbeddingRequest, EmbeddingResponse
from quire_engine.server.service import Service
from quire_engine.server.terms import RequestTerms
from quire_engine.server.terms_headers import TERMS_HEADERS


def build(service: Service) -> APIRouter:
    """The route of embeddings."""
    router = APIRouter(tags=["embeddings"])
    decoder = msgspec.json.Decoder(EmbeddingRequest)

    @router.post(
        "/v1/embeddings",
        summary="Make vectors of texts",
        **describe(
            body=EmbeddingRequest,
            answer=EmbeddingResponse,
            errors=ERRORS_OF_GENERATION,
            headers=TERMS_HEADERS,
        ),
    )
    async def create_embeddings(http: Request) -> Response:
        async with take_request(service, http) as terms:
            request = await read_json(http, decoder, service.config.server.max_body_bytes)
            service.check_model(request.model)
            _check_size(service, request)
            check_cost_hint(service, terms, request.priority)
            prompts = await tokenize_prompts(
                service.tokenizer, request.inputs(), service.facts, "input"
            )
            return EmbeddingAnswer(service, request, _tasks(service, request, terms, prompts))

    return router


def _check_size(service: Service, request: EmbeddingRequest) -> None:
    """Refuse what this engine or model has no embedding for."""
    size, wanted = service.facts.embedding_size, request.dimensions
    if size is None:
        raise RequestError(
            "input: this engine cannot compute embeddings: that takes a model, and not a simulated"
            " one or a command",
            parameter="input",
        )
    if wanted is None or wanted == size:
        return
    if wanted > size or not service.shorter_embeddings.allow(wanted):
        raise RequestError(
            f"dimensions: this model's embeddings have {size}"
            f"{service.shorter_embeddings.describe()}; leave it out",
            parameter="dimensions",
        )


def _tasks(
    service: Service,
    request: EmbeddingRequest,
    terms: RequestTerms,
    prompts: Sequence[list[int]],
) -> list[EmbeddingTask]:
    """Make a task of each prompt: one whose only token, which ends it, is never chosen."""
    sampling = SamplingParams(max_tokens=1, temperature=0.0, pooling=service.config.model.pooling)
    name = f"{service.client.client_id}-embd-{uuid.uuid4().hex}"
    tasks = []
    for number, token_ids in enumerate(prompts):
        check_prompt(token_ids, service.facts, "input")
        core_request = AddRequest(
            client_id=service.client.client_id,
            request_id=f"{name}-{number}" if number else name,
            prompt_token_ids=token_ids,
            sampling=sampling,
            priority=terms.priority_with(request.priority),
            starts_now=terms.starts_now,
            holds_room=terms.holds_room,
            deadline_seconds=terms.deadline_seconds,
            cache_salt=terms.cache_salt,
        )
        tasks.append(EmbeddingTask(core_request))
    # those that the core gets at once: a client that leaves may never let the others be sent
    note_gateway(tasks[:MAX_AT_A_TIME], terms)
    return tasks
