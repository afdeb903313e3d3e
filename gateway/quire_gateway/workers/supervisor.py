"""The process that the others are children of: it starts them, and again when they end or hang.

It holds what outlives them: the sockets of clients and of the management port, one of each worker,
so that connections wait there for the next one; the socket that workers reach the decider at; the
memory in which that publishes; and the last certificate that was good. It has no connection itself.

    a worker ends                connections to it wait for the next one
    the next one does not start  its sockets are closed, so that the others get its connections
    a worker is told to end      another one is started, which takes its connections; it drains
    the decider is told to end   it is killed: that costs no request, and the next one is there soon
"""

import asyncio
import logging
import os
import signal
import socket
from contextlib import suppress
from pathlib import Path

from quire_gateway.errors import SettingsError
from quire_gateway.http.port import open_sockets, url_of
from quire_gateway.settings import GatewaySettings
from quire_gateway.workers.board import make_board
from quire_gateway.workers.child import Plan, Role
from quire_gateway.workers.kept_certificate import KeptCertificate, keep_on
from quire_gateway.workers.nursery import Child

_FIRST_PAUSE_SECONDS = 0.1
_LONGEST_PAUSE_SECONDS = 5.0
_LONG_LIFE_SECONDS = 10.0
"""Who lived so long is started again at once."""
_LAST_SECONDS = 15.0
"""Beyond grace and drain, until children are ended that do not end by themselves."""
_BACKLOG = 2048

_log = logging.getLogger(__name__)


async def supervise(settings: GatewaySettings) -> int:
    """Serve by several processes until SIGTERM or SIGINT; the exit status is returned.

    Raises
    ------
    GatewayError
        A port cannot be had. What the others cannot use they say themselves.
    """
    return await _Supervisor(settings).run()


class _Supervisor:
    def __init__(self, settings: GatewaySettings) -> None:
        self._settings = settings
        first = open_sockets(settings.host, settings.port, is_shared=True)
        port = first[0].getsockname()[1]
        others = range(settings.workers - 1)
        self._clients = [
            first,
            *(open_sockets(settings.host, port, is_shared=True) for _ in others),
        ]
        self._management = open_sockets(settings.management_host, settings.management_port)
        for one in [*self._management, *(each for several in self._clients for each in several)]:
            _listen(one)
        self._court = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self._court.bind("")  # a name that the system makes up, in no file
        self._court.listen(_BACKLOG)
        self._boards = make_board("quire-routing"), make_board("quire-loads")
        self._certificate = self._read_certificate()
        self._children: set[Child] = set()
        self._leaving: set[asyncio.Task[None]] = set()
        self._told = asyncio.Event()
        self._status = 0

    def _read_certificate(self) -> KeptCertificate | None:
        settings = self._settings
        if not settings.tls_certificate_file:
            return None
        return KeptCertificate(Path(settings.tls_certificate_file), Path(settings.tls_key_file))

    async def run(self) -> int:
        loop = asyncio.get_running_loop()
        for word in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(word, self._note, word)
        roles: list[tuple[Role, int]] = [("decider", 0)]
        roles += [("worker", number) for number in range(self._settings.workers)]
        lives = []
        for role, number in roles:  # the decider first: workers read what it has published
            child = self._start(role, number, is_again=False)
            if not await child.until_ready():
                status = await child.wait()
                self._status = 0 if self._told.is_set() else status or 1
                self._note(signal.SIGTERM)
                break
            lives.append(loop.create_task(self._keep_alive(child)))
        else:
            has_tls = bool(self._settings.tls_certificate_file)
            print(
                f"ready: gateway on {url_of(self._clients[0], has_tls=has_tls)}/v1,"
                f" management on {url_of(self._management)}",
                flush=True,
            )
        renewing = loop.create_task(keep_on(self._certificate)) if self._certificate else None
        await self._told.wait()
        if renewing is not None:
            renewing.cancel()
        settings = self._settings
        seconds = settings.drain_grace_seconds + settings.drain_seconds + _LAST_SECONDS
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await asyncio.gather(*lives, *self._leaving)
        for child in self._children:
            child.kill()
        await asyncio.gather(*lives, *self._leaving, return_exceptions=True)
        return self._status

    def _note(self, number: signal.Signals) -> None:
        """Tell all but those that leave already; the second time these, too. None is started."""
        is_first = not self._told.is_set()
        self._told.set()
        for child in self._children:
            if not (is_first and child.is_leaving):
                child.send(number)

    def _start(self, role: Role, number: int, *, is_again: bool) -> Child:
        is_decider = role == "decider"
        sockets = self._management if is_decider else self._clients[number]
        routing_board, loads_board = self._boards
        child = Child(
            Plan(
                role=role,
                number=number,
                is_again=is_again,
                settings=self._settings,
                tether=-1,
                supervisor=os.getpid(),
                court_address=self._court.getsockname()[1:].decode(),
                court=self._court.fileno() if is_decider else -1,
                routing_board=routing_board,
                loads_board=loads_board,
                certificate=self._certificate.descriptor if self._certificate else -1,
                sockets=tuple(one.fileno() for one in sockets),
            ),
            silence_seconds=self._settings.silence_seconds,
        )
        self._children.add(child)
        return child

    async def _keep_alive(self, child: Child) -> None:
        """Start it again whenever it ends or leaves, until all are told to end."""
        loop, pause = asyncio.get_running_loop(), _FIRST_PAUSE_SECONDS
        while True:
            started_at = loop.time()
            await child.until_leaving()
            if child.is_leaving and not self._told.is_set():
                if child.plan.role == "worker":
                    child = self._replace(child)
                    continue
                child.kill()  # it would outlive all workers, and the next one is there at once
            status = await child.wait()
            self._children.discard(child)
            if self._told.is_set():
                self._status = self._status or max(status, 0)
                return
            _log.error("%s ended with status %d: it is started again", child.name, status)
            if not child.was_ready:
                self._turn_away(child.plan)
            if loop.time() - started_at > _LONG_LIFE_SECONDS:
                pause = _FIRST_PAUSE_SECONDS
            with suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._told.wait()
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
            if self._told.is_set():
                return
            child = self._start(child.plan.role, child.plan.number, is_again=True)

    def _replace(self, child: Child) -> Child:
        """Start another one in place of one that was told to end, and let that drain."""
        _log.warning("%s was told to end: another one takes its place", child.name)
        successor = self._start(child.plan.role, child.plan.number, is_again=True)
        task = asyncio.get_running_loop().create_task(self._see_out(child, successor))
        self._leaving.add(task)
        task.add_done_callback(self._leaving.discard)
        return successor

    async def _see_out(self, child: Child, successor: Child) -> None:
        if await successor.until_ready():
            child.tell_replaced()
        await child.wait()
        self._children.discard(child)

    def _turn_away(self, plan: Plan) -> None:
        """Leave a worker's connections to the others while it cannot start.

        Its sockets are taken anew, and listen when it does: until then the system gives them none.
        """
        if plan.role != "worker":
            return
        host, port = self._settings.host, self._clients[0][0].getsockname()[1]
        try:
            fresh = open_sockets(host, port, is_shared=True)
        except SettingsError as error:
            _log.error("%s", error)
            return
        for one in self._clients[plan.number]:
            one.close()
        self._clients[plan.number] = fresh


def _listen(one: socket.socket) -> None:
    """Take connections from now on; whoever serves them takes them up."""
    try:
        one.listen(_BACKLOG)
    except OSError as error:
        host, port = one.getsockname()[:2]
        raise SettingsError(f"cannot listen on {host}:{port}: {error.strerror}") from error
