import logging
from dataclasses import replace
from pathlib import Path

import pytest
from msgspec import structs

from quire_engine.calibration import stored
from quire_engine.calibration.start import calibrate_at_start
from quire_engine.calibration.stored import ProfileShelf
from quire_engine.config import EngineConfig
from quire_engine.profiles.engine_profile import Calibration, load_profile, save_profile
from tests.unit.calibration.engines import CONFIG, KnownEngine, noisy, truth

SLOW = truth(compute_seconds=(2e-3, 3e-3, 40e-3))


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("QUIRE_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "calibrations"


@pytest.fixture
def model_path(tmp_path: Path) -> Path:
    path = tmp_path / "model.gguf"
    path.write_bytes(b"weights")
    return path


def start(engine: KnownEngine, model_path: Path, config: EngineConfig = CONFIG) -> Calibration:
    return calibrate_at_start(
        engine,
        engine.facts,
        config,
        model_path,
        lambda _stage, _fraction: None,
        clock=engine.clock.now,
    )


def test_a_start_measures_and_the_next_one_takes_what_was_measured(
    model_path: Path, cache: Path
) -> None:
    first, second = KnownEngine(truth()), KnownEngine(truth())
    measured, known = start(first, model_path), start(second, model_path)

    assert measured.report.status == "measured"
    assert known.report.status == "stored"
    assert known.step_time == measured.step_time
    assert known.report.decode_steps == measured.report.decode_steps
    assert measured.report.num_steps > 100
    assert measured.report.prefill_tokens_per_second
    assert second.num_steps < 30 < first.num_steps
    assert second.rows == first.rows == {}
    (file,) = cache.iterdir()
    assert load_profile(file.read_bytes()).step_time == measured.step_time


def test_a_machine_that_has_become_slower_is_measured_anew(model_path: Path) -> None:
    start(KnownEngine(truth()), model_path)
    slower = start(KnownEngine(SLOW), model_path)

    assert slower.report.status == "measured"
    assert slower.step_time is not None
    assert slower.step_time.predict(1, 64) == pytest.approx(SLOW.predict(1, 64), rel=0.05)
    assert start(KnownEngine(SLOW), model_path).report.status == "stored"


def test_other_settings_and_other_weights_are_measured_for_themselves(
    model_path: Path, cache: Path
) -> None:
    start(KnownEngine(truth()), model_path)
    fewer = replace(CONFIG, scheduler=replace(CONFIG.scheduler, max_num_seqs=8))
    assert start(KnownEngine(truth()), model_path, fewer).report.status == "measured"
    model_path.write_bytes(b"other weights")
    assert start(KnownEngine(truth()), model_path).report.status == "measured"
    assert len(list(cache.iterdir())) == 3


@pytest.mark.parametrize("content", [b"", b"{", b"[1]", b'{"profile_version": 99}'])
def test_a_damaged_file_is_measured_over(model_path: Path, cache: Path, content: bytes) -> None:
    start(KnownEngine(truth()), model_path)
    (file,) = cache.iterdir()
    file.write_bytes(content)

    assert start(KnownEngine(truth()), model_path).report.status == "measured"
    assert start(KnownEngine(truth()), model_path).report.status == "stored"


def test_a_file_without_steps_cannot_be_checked_and_is_measured_over(
    model_path: Path, cache: Path
) -> None:
    start(KnownEngine(truth()), model_path)
    (file,) = cache.iterdir()
    profile = load_profile(file.read_bytes())
    file.write_bytes(save_profile(structs.replace(profile, steps=())))

    assert start(KnownEngine(truth()), model_path).report.status == "measured"


def test_it_can_be_turned_off(model_path: Path, cache: Path) -> None:
    engine = KnownEngine(truth())
    config = replace(CONFIG, executor=replace(CONFIG.executor, calibration_seconds=0.0))
    calibration = start(engine, model_path, config)

    assert calibration.report.status == "off"
    assert calibration.step_time is None
    assert engine.num_runs == 0
    assert not cache.exists()


def test_what_makes_no_sense_is_not_believed_and_the_engine_starts(
    model_path: Path, cache: Path, caplog: pytest.LogCaptureFixture
) -> None:
    engine = KnownEngine(truth(), disturb=noisy(1, spread=8.0, hiccups=0.4))
    with caplog.at_level(logging.INFO):
        calibration = start(engine, model_path)

    assert calibration.report.status == "failed"
    assert "busy with something else" in calibration.report.detail
    assert calibration.step_time is None
    assert engine.rows == {}
    assert "learnt while serving" in caplog.text
    assert not cache.exists()


@pytest.mark.parametrize("fail_at", [1, 5, 100])
def test_a_step_that_fails_keeps_no_engine_from_serving(
    model_path: Path, fail_at: int, caplog: pytest.LogCaptureFixture
) -> None:
    engine = KnownEngine(truth(), fail_at=fail_at)
    with caplog.at_level(logging.CRITICAL):
        calibration = start(engine, model_path)

    assert calibration.report.status == "failed"
    assert calibration.report.detail == "a step failed: ValueError"
    assert engine.rows == {}


def test_a_device_that_is_lost_does_not_serve(model_path: Path) -> None:
    engine = KnownEngine(truth(), fail_at=5)
    engine.is_lost = True
    with pytest.raises(OSError, match="lost"):
        start(engine, model_path)


def test_a_cache_that_cannot_be_written_is_done_without(
    model_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    blocked = tmp_path / "file"
    blocked.write_bytes(b"")
    monkeypatch.setenv("QUIRE_CACHE", str(blocked))
    assert start(KnownEngine(truth()), model_path).report.status == "measured"


def test_a_folder_of_weights_is_known_by_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = KnownEngine(truth())

    def shelf_of(folder: Path, device: str = "this") -> Path:
        return ProfileShelf(CONFIG, engine.facts, folder, device).path

    one, two = tmp_path / "one", tmp_path / "two"
    for folder in (one, two):
        folder.mkdir()
        (folder / "model.safetensors").write_bytes(b"weights")

    assert shelf_of(one) == shelf_of(two)
    assert shelf_of(one) != shelf_of(one, "another")
    (two / "config.json").write_bytes(b"{}")
    assert shelf_of(one) != shelf_of(two)
    here = shelf_of(one)
    monkeypatch.setattr(stored, "_processor", lambda: "another processor")
    assert shelf_of(one) != here
