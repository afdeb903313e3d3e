"""What an engine knows of its step times before it serves.

    stored at an earlier start, and a few steps take as long as then   ->  that
    else measured now, within `executor.calibration_seconds`           ->  that, and stored
    turned off, or what was measured makes no sense                    ->  nothing: learnt later

Nothing here keeps an engine from serving, but a device that computes nothing any more.
"""

import logging
import time
from pathlib import Path
from typing import Literal

from quire_engine.calibration.measuring import Clock, compare_again
from quire_engine.calibration.profiling import profile_engine
from quire_engine.calibration.rig import RowsLeftError
from quire_engine.calibration.stored import ProfileShelf
from quire_engine.config import EngineConfig
from quire_engine.errors import CalibrationError, QuireError
from quire_engine.execution.base import Executor, Progress
from quire_engine.profiles.engine_profile import (
    Calibration,
    CalibrationReport,
    EngineProfile,
    list_decode_rates,
    measure_prefill_rate,
)
from quire_engine.protocol.messages import ModelFacts

_log = logging.getLogger(__name__)

_SAME = 0.25
"""A stored profile is taken if a few steps take as long as then, within this share."""


def calibrate_at_start(
    executor: Executor,
    facts: ModelFacts,
    config: EngineConfig,
    model_path: Path,
    progress: Progress,
    *,
    clock: Clock = time.perf_counter,
) -> Calibration:
    """Find out how long steps take, on an executor that serves nobody yet.

    Raises
    ------
    RowsLeftError
        The executor is left with rows that were not ended.
    Exception
        Whatever the executor's `probe` raises: it can compute nothing any more.
    """
    if config.executor.calibration_seconds == 0:
        return Calibration(CalibrationReport(status="off"))
    begin = clock()
    try:
        status, profile = _calibrate(executor, facts, config, model_path, progress, clock)
    except RowsLeftError:
        raise
    except CalibrationError as error:
        return _without(str(error), clock() - begin)
    except Exception as error:  # noqa: BLE001 - an engine that works serves without
        _log.exception("a step failed while step times were measured")
        executor.probe()
        return _without(f"a step failed: {type(error).__name__}", clock() - begin)
    report = CalibrationReport(
        status=status,
        seconds=clock() - begin,
        num_steps=sum(len(step.samples) for step in profile.steps),
        prefill_tokens_per_second=measure_prefill_rate(profile.steps),
        decode_steps=list_decode_rates(profile.steps),
    )
    _log.info(
        "step times are %s: one request gets %.0f tokens/s, prompts %.0f, errors %.0f %% (95 %%)",
        "known" if status == "stored" else "measured",
        1 / max(profile.step_time.predict(1, 1), 1e-9),
        report.prefill_tokens_per_second or 0.0,
        100 * profile.step_time.fit_error,
    )
    return Calibration(report, profile.step_time)


def _calibrate(
    executor: Executor,
    facts: ModelFacts,
    config: EngineConfig,
    model_path: Path,
    progress: Progress,
    clock: Clock,
) -> tuple[Literal["measured", "stored"], EngineProfile]:
    shelf = _open_shelf(config, facts, model_path, executor.describe())
    stored = shelf.find() if shelf else None
    if stored is not None:
        overlaps = config.executor.overlap
        ratio = compare_again(executor, facts, stored.steps, clock=clock, overlaps=overlaps)
        if abs(ratio - 1) <= _SAME:
            return "stored", stored
        _log.info("steps take %.2f times what was stored: they are measured anew", ratio)
    profile = profile_engine(
        executor,
        facts,
        config,
        model=model_path.name,
        budget_seconds=config.executor.calibration_seconds,
        progress=progress,
        clock=clock,
    )
    if shelf is not None:
        try:
            shelf.keep(profile)
        except OSError as error:
            _log.info("step times cannot be stored for the next start: %s", error)
    return "measured", profile


def _open_shelf(
    config: EngineConfig, facts: ModelFacts, model_path: Path, device: str
) -> ProfileShelf | None:
    try:
        return ProfileShelf(config, facts, model_path, device)
    except (OSError, QuireError):
        return None


def _without(reason: str, seconds: float) -> Calibration:
    _log.info("step times could not be measured, and are learnt while serving: %s", reason)
    return Calibration(CalibrationReport(status="failed", detail=reason, seconds=seconds))
