"""xgrammar's compiled part, without the Python package around it.

`import xgrammar` imports transformers and torch: four hundred modules, seconds, and hundreds of
megabytes for each process that compiles grammars, of which these modules use nothing. The classes
of its native library are found in modules of their own, which are imported here past the package's
`__init__`. They are no public interface, so the version is pinned, and `tests/unit/grammar` tests
what is used of them.
"""

import importlib
import importlib.machinery
import importlib.util
import sys
from functools import cache
from types import ModuleType
from typing import Any

_PACKAGE = "xgrammar"


@cache
def load_native() -> Any:  # noqa: ANN401 - a module of native classes
    """Import the native classes: GrammarCompiler, GrammarMatcher, TokenizerInfo."""
    if _PACKAGE not in sys.modules:
        spec = importlib.util.find_spec(_PACKAGE)
        if spec is None:
            raise ModuleNotFoundError(f"no module named {_PACKAGE!r}", name=_PACKAGE)
        package = ModuleType(_PACKAGE)
        package.__path__ = list(spec.submodule_search_locations or ())
        sys.modules[_PACKAGE] = package
    with _without_torch():
        importlib.import_module(f"{_PACKAGE}.load_binding")
        return importlib.import_module(f"{_PACKAGE}.tvm_ffi_binding._ffi_api")


class _without_torch:  # noqa: N801 - reads as a clause
    """Keep what is imported in the block from importing torch, which it would only look at."""

    def __enter__(self) -> None:
        self._hides = "torch" not in sys.modules
        if self._hides:
            sys.modules["torch"] = None  # type: ignore[assignment]  # makes importing it fail

    def __exit__(self, *_: object) -> None:
        if self._hides:
            del sys.modules["torch"]
