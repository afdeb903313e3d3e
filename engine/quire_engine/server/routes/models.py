"""`GET /v1/models` and `GET /v1/models/{id}`."""

from fastapi import APIRouter, Response

from quire_engine.server.answers import json_response
from quire_engine.server.openapi import describe
from quire_engine.server.schemas.models import ModelCard, ModelList
from quire_engine.server.service import Service


def build(service: Service) -> APIRouter:
    """The routes that say what is served."""
    router = APIRouter(tags=["models"])

    def card(name: str) -> ModelCard:
        return ModelCard(
            id=name,
            created=service.created_at,
            max_model_len=service.max_model_len,
        )

    @router.get("/v1/models", summary="List the models", **describe(answer=ModelList))
    async def list_models() -> Response:
        return json_response(ModelList(data=[card(name) for name in service.model_names]))

    @router.get(
        "/v1/models/{model_id:path}",
        summary="Describe a model",
        **describe(answer=ModelCard, errors=(404,)),
    )
    async def get_model(model_id: str) -> Response:
        service.check_model(model_id)
        return json_response(card(model_id))

    return router
