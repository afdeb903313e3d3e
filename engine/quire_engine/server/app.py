"""The ASGI application: routes, error bodies, OpenAPI document."""

from fastapi import FastAPI
from starlette.exceptions import HTTPException
from starlette.routing import Route

from quire_engine.errors import QuireError
from quire_engine.protocol.live_state import LiveState
from quire_engine.protocol.messages import Thresholds
from quire_engine.protocol.state import EngineState
from quire_engine.server import errors
from quire_engine.server.openapi import install_openapi
from quire_engine.server.routes import (
    chat,
    completions,
    control,
    embeddings,
    health,
    insight,
    models,
    page,
    responses,
    tokens,
)
from quire_engine.server.schemas.chat import ChatChunk, ChatRequest, ChatResponse
from quire_engine.server.schemas.completions import CompletionRequest, CompletionResponse
from quire_engine.server.schemas.control import DrainRequest, DrainStatus, ThresholdsBody
from quire_engine.server.schemas.embeddings import EmbeddingRequest, EmbeddingResponse
from quire_engine.server.schemas.models import Health, ModelCard, ModelList, Version
from quire_engine.server.schemas.response_objects import ResponseObject, ResponseStreamEvent
from quire_engine.server.schemas.responses import ResponsesRequest
from quire_engine.server.schemas.tokens import (
    DetokenizeRequest,
    DetokenizeResponse,
    TokenizeRequest,
    TokenizeResponse,
)
from quire_engine.server.service import Service

_BODIES = (
    ChatChunk,
    ChatRequest,
    ChatResponse,
    CompletionRequest,
    CompletionResponse,
    DetokenizeRequest,
    DetokenizeResponse,
    DrainRequest,
    DrainStatus,
    EmbeddingRequest,
    EmbeddingResponse,
    EngineState,
    Health,
    LiveState,
    ModelCard,
    ModelList,
    ResponseObject,
    ResponsesRequest,
    ResponseStreamEvent,
    Thresholds,
    ThresholdsBody,
    TokenizeRequest,
    TokenizeResponse,
    Version,
    errors.ErrorBody,
)


def create_app(service: Service) -> FastAPI:
    """Build the application over one service, which may still be loading."""
    app = FastAPI(
        title="quire",
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,
        exception_handlers={
            errors.ApiError: errors.answer_api_error,
            QuireError: errors.answer_api_error,
            HTTPException: errors.answer_http_error,
            Exception: errors.answer_unexpected_error,
        },
    )
    modules = (
        chat,
        completions,
        responses,
        embeddings,
        models,
        health,
        insight,
        control,
        page,
        tokens,
    )
    routers = [module.build(service) for module in modules]
    for router in routers:
        app.include_router(router)
    # of the application's own list, it depends on FastAPI's version whether it is flat
    known = (*app.routes, *(route for router in routers for route in router.routes))
    app.state.routes = [route for route in known if isinstance(route, Route)]
    install_openapi(app, _BODIES, service.model_names)
    return app
