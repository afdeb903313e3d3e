"""What the engine says about itself: state, metrics, version."""

from fastapi import APIRouter, Response
from prometheus_client import CONTENT_TYPE_LATEST

from quire_engine import __version__
from quire_engine.protocol.live_state import LiveState
from quire_engine.protocol.state import EngineState
from quire_engine.server.answers import json_response
from quire_engine.server.live_stream import LiveStream
from quire_engine.server.openapi import describe
from quire_engine.server.schemas.models import Version
from quire_engine.server.service import Service
from quire_engine.server.state_stream import StateStream


def build(service: Service) -> APIRouter:
    """The routes for gateways, operators, Prometheus and people."""
    router = APIRouter(tags=["insight"])

    @router.get("/state", summary="Blocks and sequences, exactly", **describe(answer=EngineState))
    async def get_state() -> Response:
        return json_response(service.state())

    @router.get(
        "/state/stream",
        summary="The state whenever it changes, with a heartbeat each second",
        **describe(event=EngineState),
    )
    async def stream_state() -> Response:
        return StateStream(service)

    @router.get(
        "/state/live",
        summary="The state with every block and request, for people who watch",
        **describe(event=LiveState),
    )
    async def stream_live_state() -> Response:
        return LiveStream(service)

    @router.get("/metrics", summary="Prometheus metrics", **describe(text="The metrics."))
    async def get_metrics() -> Response:
        return Response(service.metrics.render(), media_type=CONTENT_TYPE_LATEST)

    @router.get("/version", summary="The version of quire", **describe(answer=Version))
    async def get_version() -> Response:
        return json_response(Version(version=__version__))

    return router
