"""Grammars in the core: compiled beside the steps, kept by content, claimed by requests.

    input thread   AddRequest ──► compiled already? ──► FrontDesk (answered at once)
                                      │ no
    compile thread                    └──► compiled ──► step loop's queue ──► core.add

What comes here has been compiled before, in a process that could be killed, so it is known to take
little time; and the native compiler releases the GIL, so that steps go on meanwhile. A request
that is taken back while its grammar is compiled never comes to the core.
"""

import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable
from queue import SimpleQueue
from threading import Lock, Thread

import msgspec

from quire_engine.errors import RequestError
from quire_engine.grammar.compiler import CompiledGrammar, Compiler
from quire_engine.grammar.refusal import SchemaError
from quire_engine.protocol.grammar import Grammar, Vocabulary
from quire_engine.protocol.messages import AddRequest

MAX_CACHED_BYTES = 256 << 20
MAX_CACHED_GRAMMARS = 512

_log = logging.getLogger(__name__)


class GrammarCache:
    """Compiled grammars, those used last; safe to use from several threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._vocabulary: bytes | None = None
        self._compiler: Compiler | None = None
        self._compiled: OrderedDict[str, CompiledGrammar] = OrderedDict()
        self._num_bytes = 0

    def use(self, vocabulary: bytes) -> None:
        """Compile for these tokens from now on: a `Vocabulary` as msgpack.

        Each API process sends the same one: what is compiled stays.
        """
        if vocabulary == self._vocabulary:
            return
        compiler = Compiler(msgspec.msgpack.decode(vocabulary, type=Vocabulary))
        with self._lock:
            self._vocabulary, self._compiler = vocabulary, compiler
            self._compiled.clear()
            self._num_bytes = 0

    def find(self, grammar: Grammar) -> CompiledGrammar | None:
        """Return a grammar that is compiled already."""
        with self._lock:
            found = self._compiled.get(grammar.key)
            if found is not None:
                self._compiled.move_to_end(grammar.key)
            return found

    def compile(self, grammar: Grammar) -> CompiledGrammar:
        """Return a grammar, compiled now if it was not.

        Raises
        ------
        RequestError
            It does not compile, or nobody has said what tokens stand for: the API server should
            have refused the request.
        """
        found = self.find(grammar)
        if found is not None:
            return found
        if self._compiler is None:
            raise RequestError("a grammar came before the vocabulary")
        try:
            compiled = self._compiler.compile(grammar)
        except Exception as error:  # else one form ends the thread, or the core
            if not isinstance(error, SchemaError):
                _log.exception("the compiler failed")
            raise RequestError(f"the grammar does not compile: {error}") from error
        with self._lock:
            self._compiled[grammar.key] = compiled
            self._num_bytes += compiled.num_bytes
            while self._is_full():
                _, dropped = self._compiled.popitem(last=False)
                self._num_bytes -= dropped.num_bytes
        return compiled

    def _is_full(self) -> bool:
        too_many = len(self._compiled) > MAX_CACHED_GRAMMARS or self._num_bytes > MAX_CACHED_BYTES
        return too_many and len(self._compiled) > 1


class GrammarDesk:
    """The thread that compiles for requests before they come to the core.

    Parameters
    ----------
    deliver
        Takes a request whose grammar is compiled, or does not compile: called by the thread, and
        must not wait.
    """

    def __init__(self, cache: GrammarCache, deliver: Callable[[AddRequest], None]) -> None:
        self._cache = cache
        self._deliver = deliver
        self._lock = Lock()
        self._pending: dict[str, AddRequest] = {}
        self._tasks: SimpleQueue[AddRequest | bytes | None] = SimpleQueue()
        self._thread: Thread | None = None

    def use(self, vocabulary: bytes) -> None:
        """Compile for these tokens what comes from now on."""
        self._put(vocabulary)

    def takes(self, request: AddRequest) -> bool:
        """Take a request whose grammar is not compiled yet; the answer is no for all others."""
        if request.grammar is None or self._cache.find(request.grammar) is not None:
            return False
        with self._lock:
            self._pending[request.request_id] = request
        self._put(request)
        return True

    def abort(self, request_ids: Iterable[str]) -> None:
        """Forget requests that are not compiled yet."""
        with self._lock:
            for request_id in request_ids:
                self._pending.pop(request_id, None)

    def close(self) -> None:
        """End the thread after what it compiles now."""
        if self._thread is not None:
            self._tasks.put(None)

    def _put(self, task: AddRequest | bytes) -> None:
        if self._thread is None:  # nothing is imported, and no thread runs, before it is needed
            self._thread = Thread(target=self._run, name="core-grammars", daemon=True)
            self._thread.start()
        self._tasks.put(task)

    def _run(self) -> None:
        while (task := self._tasks.get()) is not None:
            if isinstance(task, bytes):
                self._cache.use(task)
            else:
                self._compile_for(task)

    def _compile_for(self, request: AddRequest) -> None:
        with self._lock:
            if request.request_id not in self._pending:
                return
        try:
            if request.grammar is not None:
                self._cache.compile(request.grammar)
        except RequestError:
            _log.exception("a grammar that was tried before does not compile")
        with self._lock:  # also while it is delivered, so that no abort comes to the core before it
            if self._pending.pop(request.request_id, None) is not None:
                self._deliver(request)
