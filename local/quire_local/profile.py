"""`quire profile MODEL --output FILE`: how long this machine takes for a model's steps, as a file.

`quire serve --simulate FILE` serves an engine that takes as long, anywhere.
"""

import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from quire_engine import logs
from quire_engine.__main__ import report_errors
from quire_engine.config import EngineConfig, ExecutorConfig
from quire_engine.config.flags import FlagParser, add_setting_flags, config_from
from quire_engine.errors import ConfigError
from quire_engine.profiles.engine_profile import (
    EngineProfile,
    list_decode_rates,
    measure_prefill_rate,
    save_profile,
)
from quire_engine.profiles.files import is_profile_file

_DESCRIPTION = "Measure how long this machine takes for a model's steps, and write it to a file."
_DEFAULT_SECONDS = 30.0


def main(argv: Sequence[str], *, clock: Callable[[], float] = time.perf_counter) -> int:
    """Measure by `clock` and write; the exit status is returned."""
    return report_errors(lambda: _profile(argv, clock))


def _profile(argv: Sequence[str], clock: Callable[[], float]) -> int:
    parser = _parser()
    parsed = parser.parse_known(argv)
    if parsed.output is None:
        parser.error("the following arguments are required: --output")
    config = config_from(parsed, os.environ)
    if config.executor.simulate is not None or config.executor.command is not None:
        raise ConfigError("a profile is measured: remove simulate and command")
    output = Path(parsed.output).expanduser()
    if not is_profile_file(str(output)):
        raise ConfigError(f"--output {output}: end its name with .json, as --simulate knows files")
    if not output.absolute().parent.is_dir():
        raise ConfigError(f"there is no folder {output.absolute().parent}: make it first")
    logs.configure(config.observability, "profile")
    profile = measure(config, clock)
    output.write_bytes(save_profile(profile))
    _print_summary(profile)
    print(f"\nquire serve --simulate {output}")
    return 0


def measure(config: EngineConfig, clock: Callable[[], float]) -> EngineProfile:
    """Load the model as `quire serve` does, and measure it in this process.

    Raises
    ------
    QuireError
        There is no such model, or its steps could not be measured.
    """
    from quire_engine.calibration.profiling import profile_engine
    from quire_engine.execution.factory import create_executor
    from quire_engine.server.model_files import find_model
    from quire_engine.server.progress import ProgressLines
    from quire_engine.server.service import choose_model_name

    report = ProgressLines(sys.stderr)
    model = find_model(config, report)
    executor = create_executor(config, None if model is None else model.path)
    try:
        executor.load(report)
        facts = executor.allocate_cache()
        return profile_engine(
            executor,
            facts,
            config,
            model=choose_model_name(config),
            budget_seconds=_choose_seconds(config.executor),
            progress=report,
            clock=clock,
        )
    finally:
        executor.close()


def _choose_seconds(executor: ExecutorConfig) -> float:
    """As configured, but more than a start has where nothing was, or where starts have none."""
    seconds = executor.calibration_seconds
    is_chosen = seconds not in (0, ExecutorConfig().calibration_seconds)
    return seconds if is_chosen else _DEFAULT_SECONDS


def _print_summary(profile: EngineProfile) -> None:
    model, limits = profile.step_time, profile.step_time.limits
    print(f"{profile.model} on {profile.device}")
    print(f"prompts: up to {measure_prefill_rate(profile.steps) or 0:.0f} tokens/s")
    for rate in list_decode_rates(profile.steps):
        each = rate.context_tokens // rate.num_decodes
        print(f"{rate.num_decodes:5} decodes at {each:6} tokens: {rate.seconds * 1e3:9.2f} ms")
    print(
        f"the model's errors: {model.typical_error:.1%} in the median, {model.fit_error:.1%} for "
        f"95 % of steps; up to {limits.num_decodes} decodes, {limits.context_tokens} tokens of "
        f"context, {limits.prefill_tokens} tokens of prompts"
    )


def _parser() -> FlagParser:
    parser = FlagParser(prog="quire profile", description=_DESCRIPTION)
    parser.usage = f"{parser.prog} [MODEL] --output FILE [--setting VALUE ...]"
    parser.add_argument("--output", metavar="FILE", help="where the profile goes; ends with .json")
    add_setting_flags(parser)
    return parser
