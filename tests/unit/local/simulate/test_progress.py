"""Lines that say how far a simulation is."""

import io
import json
import re
from pathlib import Path

import pytest

from quire_local.cli import main
from quire_local.simulate import progress
from quire_local.simulate.progress import LINE_SECONDS, Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_without_a_terminal_there_is_a_line_now_and_then() -> None:
    now, stream = 100.0, io.StringIO()
    tell = Progress("quire", stream, clock=lambda: now)
    for step in range(1, 8):
        now = 100.0 + step * LINE_SECONDS / 2
        tell(step / 10)
        tell(step / 10)
    tell.end()
    assert stream.getvalue().splitlines() == [
        "quire: 20% of the requests after 30 s",
        "quire: 40% of the requests after 60 s",
        "quire: 60% of the requests after 90 s",
    ]


def test_on_a_terminal_one_line_changes_and_goes() -> None:
    now, stream = 0.0, Terminal()
    tell = Progress("quire", stream, clock=lambda: now)
    for step in range(1, 4):
        now = float(step)
        tell(step / 4)
    tell.end()
    assert stream.getvalue() == "\rquire: 25% \rquire: 50% \rquire: 75% \r\x1b[K"


@pytest.mark.parametrize("is_several", [False, True])
def test_figures_are_not_disturbed_and_time_without_requests_is_told_of(
    is_several: bool,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    trace, services = tmp_path / "two.jsonl", tmp_path / "a.yaml"
    rows = ({"arrival_seconds": at, "prompt_tokens": 300, "output_tokens": 9} for at in (0, 300))
    trace.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    services.write_text("[{name: a}, {name: b}]")
    scaled = [f"--services={services}"] if is_several else ["--scaler=quire"]
    asked = ["simulate", f"--trace={trace}", "--gpu=l4", "--quantization=int4", *scaled]
    assert main([*asked, "--json=/dev/stdout"]) == 0
    told = capsys.readouterr()
    # one of two has ended, and nothing happens for five minutes
    assert len(re.findall(r"^quire: 50% of the requests after \d+ s$", told.err, re.MULTILINE)) > 9
    assert "of the requests after" not in told.out
