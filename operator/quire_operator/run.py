"""The operator's process: watches, work and election together, until SIGTERM."""

import asyncio
import logging
import os
import signal
import socket
import time
from collections.abc import Iterator
from datetime import UTC, datetime
from itertools import chain, repeat
from typing import Any

import kopf

from quire_engine.startup_heap import freeze_startup_heap
from quire_operator import last_resort, root_secret, web
from quire_operator.cluster.api import ClusterApi
from quire_operator.cluster.kinds import SERVICES, Kind
from quire_operator.cluster.leader import Leader
from quire_operator.cluster.store import Store
from quire_operator.cluster.watching import Watching
from quire_operator.errors import ApiError, OperatorError, RetryableError, SettingsError
from quire_operator.planner.settings import GatewayPlace
from quire_operator.reconciling.engines import Engines
from quire_operator.reconciling.metrics import Metrics
from quire_operator.reconciling.polling import Doubt, Polling
from quire_operator.reconciling.queue import WorkQueue
from quire_operator.reconciling.reconciler import Reconciler
from quire_operator.reconciling.scaling import Scaling
from quire_operator.reconciling.scaling_metrics import ScalingMetrics
from quire_operator.reconciling.scaling_victims import Victims
from quire_operator.reconciling.secrets import NamedSecrets
from quire_operator.settings import OperatorSettings

_log = logging.getLogger(__name__)

_MOST_PAUSE_SECONDS = 1.0
"""Between tries to reach the API server, and to find the CRD."""
_COUNT_SECONDS = 5.0
_REFUSED = (401, 403)
_ENDING_SECONDS = 10.0
"""An end that nobody asked for may take so long. A task that does not let itself be cancelled would
keep a process that sees nothing any more, and the kubelet from starting it again."""


async def run(settings: OperatorSettings) -> int:
    """Run until SIGTERM or SIGINT; the exit status is returned."""
    api = await ClusterApi.connect()
    try:
        return await _Operator(settings, api).run()
    finally:
        await api.close()


class _Operator:
    def __init__(self, settings: OperatorSettings, api: ClusterApi) -> None:
        self._settings = settings
        self._api = api
        self._store = Store()
        self._queue = WorkQueue(time.monotonic)
        self._metrics = Metrics()
        self._root = b""
        may_see_nodes = not settings.watched_namespaces
        planner = settings.for_planner()
        self._watching = Watching(
            self._store,
            enqueue=self._queue.add,
            doubt=lambda key: self._reconciler.doubt(key),
            namespaces=settings.watched_namespaces,
            may_see_nodes=may_see_nodes,
            gateway=planner.gateway,
            with_routes=planner.route_parent is not None,
        )
        self._engines = Engines(
            root_secret=lambda: self._root,
            token_epoch=settings.token_epoch,
            poll_seconds=settings.poll_seconds,
            clock=time.monotonic,
        )
        secrets = NamedSecrets(api, period_seconds=settings.secrets_seconds, clock=time.monotonic)
        self._scaling = self._make_scaling(planner.gateway, may_see_nodes=may_see_nodes)
        self._reconciler = Reconciler(
            api=api,
            store=self._store,
            queue=self._queue,
            engines=self._engines,
            secrets=secrets,
            settings=planner,
            metrics=self._metrics,
            root_secret=lambda: self._root,
            clock=time.monotonic,
            now=lambda: datetime.now(UTC),
            may_see_nodes=may_see_nodes,
            scaling=self._scaling,
        )
        self._polling = Polling(
            store=self._store,
            queue=self._queue,
            engines=self._engines,
            secrets=secrets,
            poll_seconds=settings.poll_seconds,
            doubt=Doubt(
                self._reconciler.doubt,
                period_seconds=settings.secrets_seconds,
                clock=time.monotonic,
            ),
        )
        self._identity = f"{socket.gethostname()}_{os.getpid()}"
        self._leader = Leader(
            api,
            namespace=settings.operator_namespace,
            name=settings.lease,
            identity=self._identity,
            lease_seconds=settings.lease_seconds,
            clock=time.monotonic,
        )
        self._is_installed = asyncio.Event()
        self._is_synced = False
        self._stop = asyncio.Event()
        self._cut: asyncio.Future[asyncio.Task[Any]] = asyncio.get_running_loop().create_future()
        """The first task of kopf's that has ended: then nothing is seen any more, though kopf goes
        on until all others have ended, too."""

    def _make_scaling(self, gateway: GatewayPlace | None, *, may_see_nodes: bool) -> Scaling | None:
        """None without a gateway, of which nothing is heard then, or where it is not wanted."""
        settings = self._settings
        if gateway is None or settings.scale_seconds == 0:
            return None
        return Scaling(
            store=self._store,
            queue=self._queue,
            victims=Victims(
                self._api,
                root_secret=lambda: self._root,
                token_epoch=settings.token_epoch,
                clock=time.monotonic,
            ),
            metrics=ScalingMetrics(self._metrics.registry),
            gateway=gateway,
            gateway_urls=settings.fleet_urls,
            seconds=settings.scale_seconds,
            may_see_nodes=may_see_nodes,
            clock=time.monotonic,
            now=lambda: datetime.now(UTC),
        )

    async def run(self) -> int:
        if namespaces := self._settings.watched_namespaces:
            _log.info("works in %s alone, and sees no nodes", ", ".join(namespaces))
        runner = await web.serve(
            self._settings.http_host,
            self._settings.http_port,
            self._metrics,
            is_ready=lambda: self._is_synced,
        )
        # made before kopf starts: at its end it cancels all tasks that were made after it
        work = asyncio.create_task(self._work(), name="work")
        stopped, started = asyncio.Event(), asyncio.Event()
        watch = asyncio.create_task(self._watch(started, stopped), name="watch")
        asked = asyncio.create_task(self._wait_for_signal(started), name="signal")
        try:
            ends = (work, watch, asked, self._cut)
            done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
            if asked not in done:
                last_resort.end_within(_ENDING_SECONDS)
                ended = {task.get_name(): task for task in (work, watch) if task in done}
                if self._cut in done:
                    ended["watch"] = self._cut.result()
                for name, task in ended.items():
                    _log_end(name, task)
                return 1
            return 0
        finally:
            work.cancel()
            asked.cancel()
            await asyncio.gather(work, asked, return_exceptions=True)
            await self._leader.release()
            stopped.set()
            if self._is_installed.is_set():
                await asyncio.wait((watch,), timeout=5)
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)
            await self._engines.close()
            if self._scaling is not None:
                await self._scaling.close()
            await runner.cleanup()

    async def _watch(self, started: asyncio.Event, stopped: asyncio.Event) -> None:
        await self._wait_until_installed()
        namespaces = self._settings.watched_namespaces
        others = asyncio.all_tasks()
        tasks = await kopf.spawn_tasks(
            # kopf would take the user's name, and a container's user has none
            identity=self._identity,  # type: ignore[arg-type]
            registry=self._watching.registry(),
            settings=self._watching.settings(),
            standalone=True,
            clusterwide=not namespaces,
            namespaces=namespaces,
            ready_flag=started,
            stop_flag=stopped,
        )
        for task in tasks:
            task.add_done_callback(self._note_end)
        await kopf.run_tasks(tasks, ignored=others)

    def _note_end(self, task: asyncio.Task[Any]) -> None:
        if not self._cut.done():
            self._cut.set_result(task)

    async def _wait_until_installed(self) -> None:
        """Wait for the CRD: it may come after the operator, or have been taken away."""
        for pause in _pauses():
            try:
                missing = await self._watching.missing(self._api)
                if missing is None:
                    break
                _log.warning("waiting: the cluster has no %ss; %s", missing.kind, _remedy(missing))
            except ApiError as error:
                _say_what_is_awaited(error)
            await asyncio.sleep(pause)
        self._is_installed.set()

    async def _wait_for_signal(self, started: asyncio.Event) -> None:
        """Kopf installs handlers of its own at its start; ours come after them."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        ready = asyncio.create_task(started.wait())
        stop = asyncio.create_task(self._stop.wait())
        await asyncio.wait((ready, stop), return_when=asyncio.FIRST_COMPLETED)
        ready.cancel()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._stop.set)
        await stop

    async def _work(self) -> None:
        await self._synchronize()
        await self._leader.win()
        await self._look_at_root()  # it may have been made anew while another led
        self._metrics.is_leader.set(1)
        freeze_startup_heap()
        async with asyncio.TaskGroup() as group:
            group.create_task(self._end_when_lost(), name="lease")
            group.create_task(self._resync(), name="resync")
            group.create_task(self._relist(), name="relist")
            group.create_task(self._polling.run(), name="poll")
            if self._scaling is not None:
                group.create_task(self._scaling.run(), name="scaling")
            group.create_task(self._count(), name="count")
            group.create_task(self._reconciler.post_events(), name="events")
            for number in range(self._settings.workers):
                group.create_task(self._reconciler.work(), name=f"worker {number}")

    async def _synchronize(self) -> None:
        """Wait until the watches have brought all that a list has."""
        await self._is_installed.wait()
        for pause in _pauses():
            try:
                self._root = await root_secret.load_or_make(
                    self._api, self._settings.operator_namespace, self._settings.root_secret
                )
                await self._watching.list_all(self._api)
                if await self._watching.is_complete(self._api):
                    self._is_synced = True
                    return
            except ApiError as error:
                if error.status == 404:
                    raise _not_installed(error, self._settings.operator_namespace) from error
                _say_what_is_awaited(error)
            await asyncio.sleep(pause)

    async def _look_at_root(self) -> None:
        """Use the root secret as it is now; as it was, where that cannot be told."""
        place = self._settings.operator_namespace, self._settings.root_secret
        try:
            root = await root_secret.load_or_make(self._api, *place, known=self._root)
        except (ApiError, SettingsError) as error:
            _log.warning("the root secret stays as it was read last: %s", error)
            return
        if root != self._root:
            _log.warning("the root secret is another one: all internal tokens change")
            self._root = root

    async def _end_when_lost(self) -> None:
        await self._leader.keep()
        raise ApiError("this replica is the leader no more: it ends, to begin as a follower")

    async def _resync(self) -> None:
        while True:
            await asyncio.sleep(self._settings.resync_seconds)
            await self._look_at_root()
            try:
                await self._watching.list_all(self._api)
            except ApiError as error:
                _log.warning("the lists for a resync failed: %s", error)
                continue
            for key in self._store.keys(SERVICES.kind):
                self._reconciler.doubt(key)
                self._queue.add(key)

    async def _relist(self) -> None:
        while True:
            await self._watching.relist_needed.wait()
            self._watching.relist_needed.clear()
            await asyncio.sleep(1.0)  # the repetition is still coming
            try:
                await self._watching.list_needed(self._api)
            except ApiError as error:
                _log.warning("a list after a cut watch failed: %s", error)
                self._watching.relist_needed.set()

    async def _count(self) -> None:
        """Show how many services wait, now and then."""
        while True:
            self._metrics.queue_length.set(len(self._queue))
            await asyncio.sleep(_COUNT_SECONDS)


def _remedy(missing: Kind) -> str:
    if missing is SERVICES:
        return "`kubectl apply --server-side -f manifests/crds` brings them"
    return "install the kinds of the Gateway API, or leave --http-route-gateway out"


def _say_what_is_awaited(error: ApiError) -> None:
    """Log why a start goes no further; raise what does not pass by itself.

    An API server that starts refuses everybody until it has read its roles.
    """
    if error.status in _REFUSED:
        _log.warning(
            "waiting for rights: %s; manifests/operator-rbac.yaml, and the chart, have all that the"
            " operator needs",
            error,
        )
    elif isinstance(error, RetryableError):
        _log.warning("waiting for the API server: %s", error)
    else:
        raise error


def _pauses() -> Iterator[float]:
    """Seconds between tries, without end: short at first."""
    return chain((0.1, 0.2, 0.2, 0.4, 0.4, 0.8), repeat(_MOST_PAUSE_SECONDS))


def _log_end(name: str, task: asyncio.Task[Any]) -> None:
    """Say why a task has ended, of a group that of its tasks which did."""
    error = None if task.cancelled() else task.exception()
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    # where an error of ours was raised says nothing that its message does not
    trace = None if isinstance(error, OperatorError) else error
    _log.error("%s ended: %s", name, error or "unasked", exc_info=trace)


def _not_installed(error: ApiError, namespace: str) -> SettingsError:
    return SettingsError(
        f"{error}: the cluster lacks what the operator works with; `kubectl create namespace"
        f" {namespace}` and `kubectl apply --server-side -f manifests/crds` make it"
    )
