"""Steering a running engine: `/drain` and `/thresholds`.

They are for operators and gateways: whoever reaches the engine's port can use them.
"""

import msgspec
from fastapi import APIRouter, Request, Response

from quire_engine.protocol.messages import Thresholds
from quire_engine.server.answers import json_response
from quire_engine.server.body import read_json
from quire_engine.server.errors import ApiError
from quire_engine.server.openapi import ERRORS_OF_BODIES, describe
from quire_engine.server.schemas.control import DrainRequest, DrainStatus, ThresholdsBody
from quire_engine.server.service import Service

_MAX_BODY_BYTES = 4096


def build(service: Service) -> APIRouter:
    """The routes for operators."""
    router = APIRouter(tags=["control"])
    drain_decoder = msgspec.json.Decoder(DrainRequest)
    thresholds_decoder = msgspec.json.Decoder(ThresholdsBody)

    @router.post(
        "/drain",
        summary="Take no more requests, let running ones finish",
        **describe(
            body=DrainRequest,
            answer=DrainStatus,
            is_body_needed=False,
            errors=ERRORS_OF_BODIES,
        ),
    )
    async def begin_drain(http: Request) -> Response:
        request = await read_json(http, drain_decoder, _MAX_BODY_BYTES, empty=b"{}")
        await service.steering.begin_drain(request.seconds)
        return json_response(_drain_status(service))

    @router.delete(
        "/drain",
        summary="Take requests again",
        **describe(answer=DrainStatus, errors=(409,)),
    )
    async def undo_drain() -> Response:
        if service.is_stopping:
            raise ApiError(
                409, "The server is shutting down; that cannot be undone.", code="shutting_down"
            )
        await service.steering.undo_drain()
        return json_response(_drain_status(service))

    @router.get(
        "/thresholds",
        summary="The limits in force",
        **describe(answer=Thresholds, errors=(503,)),
    )
    async def get_thresholds() -> Response:
        return json_response(_in_force(service))

    @router.put(
        "/thresholds",
        summary="Put other limits in force; what runs is not touched",
        **describe(body=ThresholdsBody, answer=Thresholds, errors=ERRORS_OF_BODIES),
    )
    async def put_thresholds(http: Request) -> Response:
        body = await read_json(http, thresholds_decoder, _MAX_BODY_BYTES)
        wanted = body.to_thresholds()
        _in_force(service)
        await service.steering.set_thresholds(wanted)
        return json_response(wanted)

    return router


def _drain_status(service: Service) -> DrainStatus:
    return DrainStatus(is_draining=service.is_draining, num_in_flight=service.num_in_flight)


def _in_force(service: Service) -> Thresholds:
    profile = service.client.latest_profile
    if profile is None:
        raise _not_ready()
    return profile.thresholds


def _not_ready() -> ApiError:
    return ApiError(
        503,
        "The engine is loading or starting again; try again in a moment.",
        code="not_ready",
        retry_after_seconds=2.0,
    )
