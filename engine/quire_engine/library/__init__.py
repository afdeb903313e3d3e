"""The engine as a library: submit prompts, step, collect results, in this process.

    from quire_engine import Engine, GenerationParams, make_config

    with Engine(make_config(max_num_seqs=8)) as engine:
        engine.submit_request("Hello, world!", GenerationParams(max_tokens=100))
        for result in engine.run():
            print(result.output_text)

It is the core that the server runs in a process of its own, with the same scheduler and blocks.
"""

from quire_engine.execution.recovering import Recovery, RecoveryAction, StepFailure, retry_then
from quire_engine.library.engine import Engine
from quire_engine.library.params import GenerationParams
from quire_engine.library.results import Result
from quire_engine.library.settings import make_config

__all__ = [
    "Engine",
    "GenerationParams",
    "Recovery",
    "RecoveryAction",
    "Result",
    "StepFailure",
    "make_config",
    "retry_then",
]
