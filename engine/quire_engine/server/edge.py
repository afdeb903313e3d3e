"""The outermost layer of the application: what every request passes, and every answer.

    id ──► access ──► room for the body ──► application ──► headers of the answer
       ──► counts, a line in the log, a trace

One layer and not one for each of these: each would be another call for every piece of a stream.
"""

import logging
from collections.abc import Sequence

from starlette.datastructures import MutableHeaders
from starlette.routing import Match, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from quire_engine.server.access import Access
from quire_engine.server.body_room import BodyRoom, CountedBody
from quire_engine.server.event_stream import IS_HEAD
from quire_engine.server.request_log import RequestLog
from quire_engine.server.request_record import (
    REQUEST_ID_HEADER,
    RequestRecord,
    current_record,
)
from quire_engine.server.service import Service
from quire_engine.server.tracing import Tracing

STATE_HEADER = "x-quire-state"
_log = logging.getLogger(__name__)


class Edge:
    """ASGI application around another.

    Parameters
    ----------
    routes
        Every route of the application: requests are counted by theirs even if they never reach it.
    tracing
        Where traces go; None makes none.
    """

    def __init__(
        self,
        app: ASGIApp,
        routes: Sequence[Route],
        service: Service,
        access: Access,
        log: RequestLog,
        tracing: Tracing | None = None,
    ) -> None:
        self._app = app
        self._routes = routes
        self._service = service
        self._access = access
        self._log = log
        self._tracing = tracing
        limits = service.config.server
        self._body_room = BodyRoom(limits.max_total_body_bytes // limits.api_workers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = RequestRecord(scope, _header(scope, REQUEST_ID_HEADER.encode()))
        token = current_record.set(record)
        body = CountedBody(receive, self._body_room)
        try:
            await self._answer(_as_get(scope), body.receive, self._sender(record, send))
        except Exception:  # noqa: BLE001 - the application has logged it, and answered if it could
            _log.debug("a request ended with an exception")
        finally:
            body.end()
            self._end(record)
            current_record.reset(token)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._access.refuse(scope)
        if refusal is None:
            await self._app(scope, receive, send)
        else:
            await refusal.response()(scope, receive, send)

    def _sender(self, record: RequestRecord, send: Send) -> Send:
        scope = record.scope
        has_state = scope["method"] == "POST" and scope["path"].startswith("/v1/")

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
                headers = MutableHeaders(raw=list(message.get("headers", ())))
                headers[REQUEST_ID_HEADER] = record.request_id
                if has_state and record.status not in (401, 403):
                    headers[STATE_HEADER] = self._service.compact_state()
                message["headers"] = headers.raw
            await send(message)

        return send_with_headers

    def _end(self, record: RequestRecord) -> None:
        record.end()
        scope = record.scope
        if "route" not in scope:  # refused at the door, or answered by a route that does not say
            matching = (route for route in self._routes if _matches(route, scope))
            scope["route"] = next(matching, None)
        self._service.metrics.count_http(
            record.method, record.route, record.status, record.ended_at - record.started_at
        )
        self._log.write(record)
        if self._tracing is not None:
            self._tracing.export(record)


def _as_get(scope: Scope) -> Scope:
    """What is asked for: of HEAD, the answer to GET, whose body the server leaves out."""
    return {**scope, "method": "GET", IS_HEAD: True} if scope["method"] == "HEAD" else scope


def _matches(route: Route, scope: Scope) -> bool:
    """Whether the path is the route's, whatever the method."""
    return route.matches(scope)[0] is not Match.NONE


def _header(scope: Scope, name: bytes) -> str | None:
    """The only value of a header, or None."""
    values = [value for key, value in scope["headers"] if key == name]
    return values[0].decode("latin-1") if len(values) == 1 else None
