"""quire's engine: one model on one node, from KV blocks to the OpenAI-compatible server.

Importing this package, `protocol`, `config`, `profiles`, `kvcache` or `scheduler` never imports
torch: the gateway, the operator and the simulator use those without it. The library's names below
are imported when they are first asked for.
"""

import importlib
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from quire_engine.library import Engine, GenerationParams, RecoveryAction, Result, make_config

__version__ = "0.1.0"
__all__ = ["Engine", "GenerationParams", "RecoveryAction", "Result", "__version__", "make_config"]


def __getattr__(name: str) -> object:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(importlib.import_module("quire_engine.library"), name)
