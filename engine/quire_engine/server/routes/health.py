"""Probes: is the process alive, and should it be sent requests."""

from fastapi import APIRouter, Response

from quire_engine.server.answers import json_response
from quire_engine.server.openapi import describe
from quire_engine.server.schemas.models import Health
from quire_engine.server.service import Service


def build(service: Service) -> APIRouter:
    """The routes for kubelets and load balancers."""
    router = APIRouter(tags=["health"])

    def readiness() -> Response:
        health = service.health()
        return json_response(health, status=200 if health.status == "ok" else 503)

    @router.get("/healthz", summary="Whether the process is alive", **describe(answer=Health))
    async def get_liveness() -> Response:
        return json_response(Health(status="ok"))

    @router.get(
        "/readyz",
        summary="Whether to send requests here",
        **describe(answer=Health, statuses=(200, 503)),
    )
    async def get_readiness() -> Response:
        return readiness()

    @router.get(
        "/health",
        summary="The same as /readyz, as vLLM has it",
        **describe(answer=Health, statuses=(200, 503)),
    )
    async def get_health() -> Response:
        return readiness()

    return router
