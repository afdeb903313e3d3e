"""Routes of the public port, and what all requests share."""

import asyncio
from collections.abc import Callable
from typing import Generic
from urllib.parse import unquote

import msgspec

from quire_gateway.errors import ApiError, shutting_down
from quire_gateway.http.client_connection import ClientConnection
from quire_gateway.http.headers import Headers
from quire_gateway.http.request import Answering, Request
from quire_gateway.routing.access import may_use
from quire_gateway.routing.document import ApiKey
from quire_gateway.serving.claim import Claim, TellWay
from quire_gateway.serving.directory import Directory, ServedT
from quire_gateway.serving.exchange import Exchange, Surroundings
from quire_gateway.serving.inquiry import (
    ENGINE_PATHS,
    bearer_of,
    host_of,
    is_proxied,
    read_inquiry,
    request_id_of,
)
from quire_gateway.serving.metrics import GatewayMetrics
from quire_gateway.serving.record import Record, log_request
from quire_gateway.serving.relay import error_events
from quire_gateway.serving.trace_context import trace_of
from quire_gateway.serving.tracing import Tracing
from quire_gateway.serving.wish import Wish

JSON: Headers = [(b"content-type", b"application/json")]
_MODELS = "/v1/models"
_PROBES = frozenset({"/health", "/healthz", "/readyz"})


class Gateway(Generic[ServedT]):
    """Answers clients.

    Parameters
    ----------
    claim
        Makes a request's claim to an engine.
    is_ready
        Whether a load balancer should send requests here.
    proxied_hosts
        At these hosts a proxy may reach all services; "*" stands for all that no ingress has.
    tracing
        Where traces go; None makes none.
    """

    def __init__(
        self,
        directory: Directory[ServedT],
        metrics: GatewayMetrics,
        *,
        claim: Callable[[ServedT, ApiKey, Wish, TellWay], Claim],
        is_ready: Callable[[], bool],
        request_timeout_seconds: float,
        logs_requests: bool,
        proxied_hosts: frozenset[str] = frozenset(),
        tracing: Tracing | None = None,
    ) -> None:
        self._directory = directory
        self._metrics = metrics
        self._is_ready = is_ready
        self._logs_requests = logs_requests
        self._proxied_hosts = proxied_hosts
        self._tracing = tracing
        self._loop = asyncio.get_running_loop()
        self._around = Surroundings(
            loop=self._loop,
            claim=claim,
            request_timeout_seconds=request_timeout_seconds,
            clock=self._loop.time,
            end=self._end,
        )
        self.has_routing = True
        """Whether it knows which services there are."""
        self.is_refusing = False
        """No request is taken any more: the gateway ends."""

    def answer(self, client: ClientConnection, request: Request) -> Answering | None:
        """Answer one request, now or later."""
        path = request.target.partition(b"?")[0].decode("latin-1")
        if path in _PROBES:
            answer_probe(client, path, is_ready=self._is_ready())
            client.end()
            return None
        trace = trace_of(request)
        record = Record(request_id_of(request), trace, self._loop.time(), path)
        if self._tracing is not None:
            self._tracing.begin(record)
        try:
            exchange = self._route(client, request, path, record)
            if exchange is not None:
                exchange.start()
                return exchange
        except ApiError as error:
            self._end(client, record, error)
        else:
            self._end(client, record, None)
        return None

    def _route(
        self, client: ClientConnection, request: Request, path: str, record: Record
    ) -> Exchange | None:
        """Answer what needs no engine."""
        if self.is_refusing:
            raise shutting_down()
        if not self.has_routing:
            raise ApiError(
                503,
                "The gateway does not know its models yet; send the request again.",
                reason="no_routing",
                retry_after_seconds=2.0,
            )
        self._check_entrance(request)
        if path == _MODELS or path.startswith(_MODELS + "/"):
            if request.method not in (b"GET", b"HEAD"):
                raise _wrong_method(request)
            self._answer_models(client, request, unquote(path.removeprefix(_MODELS)[1:]), record)
            return None
        if path not in ENGINE_PATHS:
            message = f"There is no such route; {_MODELS} lists what can be asked, below /v1."
            raise ApiError(404, message, reason="unknown_route")
        if request.method != b"POST":
            raise _wrong_method(request)
        inquiry = read_inquiry(path, request)
        service, key = self._identify(inquiry.model, request)
        record.service, record.key = service.label, key.name
        self._metrics.key_requests.count((record.service, record.key))
        return Exchange(client, request, inquiry, service, key, record, self._around)

    def _check_entrance(self, request: Request) -> None:
        """Refuse what a proxy passed on for a host without an ingress.

        Services without keys are for the cluster alone, and at such a host all of them would be
        found: controllers pass on a client's Host, in which there may be other than they route by.

        Raises
        ------
        ApiError
            404.
        """
        if not is_proxied(request):
            return
        host = host_of(request)
        if self._directory.has_host(host) or not self._proxied_hosts.isdisjoint((host, "*")):
            return
        message = (
            f"No service is at the host {host[:253]!r} for those who come through a proxy: ask at a"
            " service's ingress.host. Where a proxy of your own leads to all services, start the"
            " gateway with its host in --proxied-hosts."
        )
        raise ApiError(404, message, reason="unknown_host")

    def _identify(self, model: str, request: Request) -> tuple[ServedT, ApiKey]:
        """Return the model's service and whose request it is.

        Raises
        ------
        ApiError
            404, 401 or 403. Which models there are is told to those who may use them.
        """
        host = host_of(request)
        service = self._directory.find(model, host)
        if service is None:
            raise _unknown_model(model, self._names(request))
        key = service.access.identify(bearer_of(request), host)
        if not may_use(key, model):
            raise ApiError(
                403, "The key is not for this model.", reason="model_forbidden", param="model"
            )
        return service, key

    def _names(self, request: Request) -> list[str]:
        """The models that this client may use."""
        names: dict[str, None] = {}
        presented, host = bearer_of(request), host_of(request)
        for service in self._directory.services.values():
            if not self._directory.is_at(service, host):
                continue
            try:
                key = service.access.identify(presented, host)
            except ApiError:
                continue
            names |= dict.fromkeys(n for n in service.document.model_names if may_use(key, n))
        return list(names)

    def _is_unknown(self, request: Request) -> bool:
        """Whether there are services where the client asks, and all say that its key is wrong."""
        presented, host = bearer_of(request), host_of(request)
        statuses = set()
        for service in self._directory.services.values():
            if self._directory.is_at(service, host):
                try:
                    service.access.identify(presented, host)
                except ApiError as error:
                    statuses.add(error.status)
                else:
                    return False
        return statuses == {401}

    def _answer_models(
        self, client: ClientConnection, request: Request, name: str, record: Record
    ) -> None:
        names = self._names(request)
        if not names and bearer_of(request) is None and self._directory.services:
            message = "There is no key in the request: send it as `Authorization: Bearer KEY`."
            raise ApiError(401, message, reason="missing_api_key")
        if not names and self._is_unknown(request):
            raise ApiError(401, "The key is not known.", reason="invalid_api_key")
        if name and name not in names:
            raise _unknown_model(name, names)
        cards = [self._describe_model(one, request) for one in names]
        body: object = {"object": "list", "data": cards}
        if name:
            body = next(card for card in cards if card["id"] == name)
        record.status = 200
        content = msgspec.json.encode(body)
        client.start(200, [*JSON, (b"x-request-id", record.request_id)], len(content))
        if request.method != b"HEAD":
            client.write(content)

    def _describe_model(self, name: str, request: Request) -> dict[str, object]:
        """A model as OpenAI has it; its length, as engines tell it, once one is heard."""
        service = self._directory.find(name, host_of(request))
        card: dict[str, object] = {"id": name, "object": "model", "created": 0}
        card["owned_by"] = "quire"
        if service is not None and service.max_model_len:
            card["max_model_len"] = service.max_model_len
        return card

    def _end(self, client: ClientConnection, record: Record, error: ApiError | None) -> None:
        """The request is over, all but an error that is still to be told."""
        if error is not None:
            record.status, record.reason = error.status, error.reason
            self._metrics.refusals.labels(record.service, error.reason).inc()
            if client.has_started:  # with comments, while it waited
                client.write(error_events(record.path, error))
                client.finish()
            else:
                headers = [*JSON, *error.headers(), (b"x-request-id", record.request_id)]
                client.respond(error.status, headers, error.body())
        self._count(record)
        client.end()

    def _count(self, record: Record) -> None:
        """Count the request, and log it if that is wanted; never what it said."""
        ended_at = self._loop.time()
        seconds = ended_at - record.started_at
        metrics = self._metrics
        metrics.requests.count((record.service, str(record.status)))
        if record.service:
            metrics.seconds.observe(record.service, seconds)
            if record.first_byte_at is not None:
                first = record.first_byte_at - record.started_at
                metrics.first_byte_seconds.observe(record.service, first)
        if self._logs_requests:
            log_request(record, ended_at)
        if self._tracing is not None:
            self._tracing.end(record)


def answer_probe(client: ClientConnection, path: str, *, is_ready: bool, problem: str = "") -> None:
    """Answer a probe: alive, or ready.

    Parameters
    ----------
    problem
        What is wrong, and no reason to send requests elsewhere: others have it, too.
    """
    is_up = is_ready or path != "/readyz"
    body = {"status": "ok" if is_up else "not ready"} | ({"problem": problem} if problem else {})
    client.respond(200 if is_up else 503, JSON, msgspec.json.encode(body))


def _unknown_model(name: str, known: list[str]) -> ApiError:
    message = f"The model {name[:200]!r} does not exist"
    message += f"; there are {', '.join(map(repr, known[:20]))}." if known else "."
    return ApiError(404, message, reason="model_not_found", param="model")


def _wrong_method(request: Request) -> ApiError:
    method = request.method[:20].decode("latin-1")
    return ApiError(405, f"This route does not take {method}.", reason="wrong_method")
