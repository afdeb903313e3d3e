"""Loads the compiled library and holds its worker threads."""

from __future__ import annotations

import ctypes
import functools
import logging
import weakref
from ctypes import POINTER, c_float, c_int32, c_int64, c_void_p

from quire_kernels.cpu.ahead import find_library
from quire_kernels.cpu.build import BuildError, build, choose_recipe, is_built
from quire_kernels.cpu.layout import CBatch, CCache, CMatrix, CModel
from quire_kernels.errors import ArgumentError

_log = logging.getLogger(__name__)

_FUNCTIONS = {
    "quire_team_create": (c_void_p, [c_int32]),
    "quire_team_destroy": (None, [c_void_p]),
    "quire_workspace_create": (c_void_p, []),
    "quire_workspace_destroy": (None, [c_void_p]),
    "quire_instructions": (ctypes.c_char_p, []),
    "quire_packed_bytes": (c_int64, [c_int32, c_int64, c_int64]),
    "quire_pack": (
        c_int32,
        [c_void_p, c_int32, c_void_p, c_int32, c_int64, c_int64, c_void_p],
    ),
    "quire_decode_step": (
        None,
        [c_void_p, c_void_p, POINTER(CModel), POINTER(CCache), POINTER(CBatch)],
    ),
    "quire_embed": (None, [POINTER(CMatrix), c_void_p, c_int64, c_void_p]),
    "quire_rms_norm": (None, [c_void_p, c_void_p, c_float, c_int64, c_int64, c_void_p]),
    "quire_matmul": (None, [c_void_p, POINTER(CMatrix), c_void_p, c_int64, c_void_p]),
    "quire_attention": (
        None,
        [
            c_void_p,
            POINTER(CCache),
            c_int32,
            c_int32,
            c_float,
            c_float,
            c_int32,
            POINTER(CBatch),
            c_void_p,
            c_void_p,
        ],
    ),
}


@functools.cache
def load_library(*, portable: bool = False) -> ctypes.CDLL:
    """Return the library: compiled ahead, or now where it is not in the cache (20 s of one core).

    Parameters
    ----------
    portable
        The variant without this processor's own instructions; for tests.

    Raises
    ------
    BuildError
        There is no compiler, it fails, or its result cannot be loaded.
    """
    path = (None if portable else find_library()) or build(choose_recipe(portable=portable))
    try:
        library = ctypes.CDLL(str(path))
    except OSError as error:
        raise BuildError(f"the compiled kernels cannot be loaded: {error}") from error
    for name, (result, arguments) in _FUNCTIONS.items():
        function = getattr(library, name)
        function.restype, function.argtypes = result, arguments
    return library


def must_compile() -> bool:
    """Whether the first use of the library will compile it, for seconds."""
    try:
        return find_library() is None and not is_built(choose_recipe())
    except BuildError:
        return False


@functools.cache
def unavailable_reason() -> str | None:
    """Return why the kernels cannot be used here, or None if they can; says it once in the log."""
    try:
        load_library()
    except BuildError as error:
        _log.warning("no CPU kernels, torch computes instead: %s", error)
        return str(error)
    return None


class Team:
    """Threads that compute together; they sleep between calls.

    Use one team from one thread at a time, and not after a fork.

    Parameters
    ----------
    num_threads
        The calling thread is one of them.
    library
        From `load_library`.

    Raises
    ------
    ArgumentError
        `num_threads` is not positive.
    """

    def __init__(self, num_threads: int, library: ctypes.CDLL | None = None) -> None:
        if num_threads < 1:
            raise ArgumentError(f"num_threads {num_threads}: at least 1 thread computes")
        self.library = library or load_library()
        self.num_threads = num_threads
        self.handle: int = self.library.quire_team_create(num_threads)
        self._finalizer = weakref.finalize(self, self.library.quire_team_destroy, self.handle)

    def close(self) -> None:
        """End the threads; safe to call twice."""
        self._finalizer()
