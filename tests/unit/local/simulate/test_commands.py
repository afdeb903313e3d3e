"""`quire simulate` and `quire plan` on the command line."""

import json
import re
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from quire_local.cli import main
from quire_local.simulate import progress

SMALL = ["--generate", "poisson", "--seconds", "40", "--requests-per-second", "2", "--gpu", "l4"]
INT4 = [*SMALL, "--quantization", "int4"]


def test_a_table_json_and_a_page(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = ["--json", f"{tmp_path / 'a.json'}", "--html", f"{tmp_path / 'a.html'}"]
    assert main(["simulate", *INT4, "--scaler", "fixed,melange", "--fixed", "l4=2", *files]) == 0
    told = capsys.readouterr()
    assert re.search(r"^fixed +\d+\.\d\d ", told.out, re.MULTILINE)
    document = json.loads((tmp_path / "a.json").read_text())
    assert [one["scaler"] for one in document["results"]] == ["fixed", "melange"]
    assert document["settings"]["quantization"] == "int4"
    assert document["lower_bound"]["dollars"] > 0
    page = (tmp_path / "a.html").read_text()
    assert "http" not in page
    assert "<script" not in page
    charts = re.findall(r"<svg.*?</svg>", page, re.DOTALL)
    assert len(charts) == 3 + 2 * 4
    for chart in charts:
        drawn = ET.fromstring(chart)
        assert drawn.get("aria-label")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["simulate", "--html", "{folder}"], "is a folder: name a file in it"),
        (["plan", "--json", "{folder}"], "is a folder: name a file in it"),
        (["simulate", "--json", "{folder}/none/x"], "make it first"),
        (["simulate", "--json", "{folder}/x", "--html", "{folder}/x"], "name two files"),
        (["simulate", "--html", "/dev/full"], "cannot be written: No space left on device"),
        (["simulate", "--min-replicas", "5", "--max-replicas", "2"], "lower it or raise the other"),
    ],
)
def test_what_cannot_be_written_or_hold_is_said_in_one_line(
    arguments: list[str], words: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command, *rest = (one.format(folder=tmp_path) for one in arguments)
    assert main([command, *INT4, *rest]) != 0
    told = capsys.readouterr().err
    assert words in told.splitlines()[-1]
    assert "Traceback" not in told


def test_a_broken_promise_and_what_never_came_are_told(capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--scaler", "fixed", "--fixed", "l4=1", "--quantization", "int4"]
    assert main(["simulate", *few, *SMALL, "--requests-per-second", "30"]) == 0
    told = capsys.readouterr().out
    assert "  never  " in told
    assert "never: so many requests were refused or lost" in told
    [broken] = [line for line in told.splitlines() if line.startswith("Promise broken: ")]
    assert re.search(r"fixed kept \d+\.\d\d% where 95% are promised", broken)
    assert main(["simulate", *INT4, "--scaler", "fixed", "--fixed", "l4=8"]) == 0
    kept = capsys.readouterr().out
    assert "never" not in kept
    assert "Promise broken" not in kept


@pytest.mark.parametrize(
    ("model", "weights", "source"),
    [
        ("llama3-8b", "none", "measured"),
        ("llama3.1-8b", "none", "measured"),  # the same network
        ("llama3-8b", "int4", "data sheet"),
        ("mistral-7b", "none", "data sheet"),
    ],
)
def test_a_plan_says_what_step_times_are_from(
    model: str, weights: str, source: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = ["plan", *SMALL, "--gpu", "h100", "--model", model, "--quantization", weights]
    assert main(asked) == 0
    [row] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("h100  ")]
    assert f"  {source}  " in row


def test_a_model_is_named_as_on_the_hub(capsys: pytest.CaptureFixture[str]) -> None:
    asked = [*SMALL, "--gpu", "h100"]
    assert main(["plan", *asked, "--model", "qwen3-8b"]) == 0
    by_shape = capsys.readouterr().out
    for name in ("Qwen/Qwen3-8B", "hf://Qwen/Qwen3-8B@main", "QWEN3-8B"):
        assert main(["plan", *asked, "--model", name]) == 0
        assert capsys.readouterr().out == by_shape


def test_a_plan_says_what_it_does_not_know_and_who_does(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *INT4]) == 0
    *_, told = capsys.readouterr().out.splitlines()
    found = re.search(r"quire simulate .* --scaler fixed --fixed (\S+) tries", told)
    assert found
    assert main(["simulate", *INT4, "--scaler", "fixed", "--fixed", found[1]]) == 0


def test_a_plan_says_why_a_mix_does_more_than_its_parts(capsys: pytest.CaptureFixture[str]) -> None:
    traffic = ("--generate", "poisson", "--requests-per-second", "22", "--seconds", "10m")
    told = {}
    for gpus in ("t4,l4", "t4"):
        assert main(["plan", *traffic, "--quantization", "int4", "--gpu", gpus]) == 0
        told[gpus] = capsys.readouterr().out
    assert re.search(r"traffic: \d+ t4, \d+ l4", told["t4,l4"])
    assert "which get the long ones, they do more" in told["t4,l4"]
    assert "they do more" not in told["t4"]


def test_a_target_is_a_part_of_what_admission_lets_in(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", *INT4, "--target", "75", "--admission", "60"]) == 0
    assert "for the mean of all traffic" in capsys.readouterr().out


def test_one_seed_is_one_file(tmp_path: Path) -> None:
    texts = []
    for name in ("a", "b"):
        path = tmp_path / f"{name}.json"
        arguments = ["simulate", *INT4, "--scaler", "quire", "--seed", "5"]
        assert main([*arguments, "--json", f"{path}"]) == 0
        texts.append(path.read_text().replace(f"{path}", ""))
    assert texts[0] == texts[1]


def test_money_that_does_not_pay_for_the_fewest_replicas_is_told(
    capsys: pytest.CaptureFixture[str],
) -> None:
    bounds = ["--scaler", "quire", "--min-replicas", "3", "--max-cost-per-hour"]
    for cost, words in (("1.7", "1.7 pays for 2 on l4"), ("0.1", "0.1 pays for no replica")):
        assert main(["simulate", *INT4, *bounds, cost]) == 0
        assert f"{words}" in capsys.readouterr().err
    assert main(["simulate", *INT4, *bounds, "10"]) == 0
    assert "pays for" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (
            ["--scaler", "fixed", "--fixed", "l4=3", "--gpu", "l4=2"],
            "asks for 3 l4, and --gpu has 2 nodes: what is beyond never starts",
        ),
        (
            ["--scaler", "quire", "--event", "9999:kill:l4"],
            "kill of l4 at second 9999 comes after the last request",
        ),
    ],
)
def test_what_will_not_be_is_told(
    arguments: list[str], words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", *INT4, *arguments]) == 0
    assert words in capsys.readouterr().err
    assert main(["simulate", *INT4, "--scaler", "fixed", "--fixed", "l4=1"]) == 0
    assert "note:" not in capsys.readouterr().err


@pytest.mark.parametrize("command", ["plan", "simulate"])
@pytest.mark.parametrize("flag", ["--slo-time-to-first-token", "--slo-time-per-output-token"])
def test_promises_that_no_gpu_keeps_are_an_error_that_names_one_it_keeps(
    command: str, flag: str, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = [command, "--generate=poisson", "--seconds=8", "--gpu=h200,l4", "--quantization=int4"]
    assert main([*asked, f"{flag}=1ms"]) == 2
    told = capsys.readouterr()
    assert not told.out
    found = re.search(rf"the best there is takes ([0-9.]+) ms .*\(h200\): raise {flag}$", told.err)
    assert found
    assert main([*asked, f"{flag}={found[1]}ms"]) == 0


def test_promises_that_are_merely_broken_are_no_error(capsys: pytest.CaptureFixture[str]) -> None:
    few = ["--scaler=fixed", "--fixed=l4=1", "--slo-time-to-first-token=70ms"]
    assert main(["simulate", *INT4, *few]) == 0
    assert "Promise broken: fixed kept " in capsys.readouterr().out


@pytest.mark.parametrize("hours", ["0", "-1", "nan", "1e9", ""])
@pytest.mark.parametrize("flag", ["--fail-hours=", "--spot=l4="])
def test_hours_between_faults_have_one_rule(
    flag: str, hours: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["simulate", *INT4, f"{flag}{hours}"])
    assert f'"{hours}" is no number from 0.001 to 1e+06' in capsys.readouterr().err


@pytest.mark.parametrize("fixed", ["l4=2.5", "l4=0", "l4", "l4=1,l4=2"])
def test_fixed_replicas_are_whole_and_named_once(
    fixed: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit, match="2"):
        main(["simulate", *INT4, "--scaler=fixed", f"--fixed={fixed}"])
    assert "argument --fixed: " in capsys.readouterr().err


def test_one_is_no_plural(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace, page = tmp_path / "one.jsonl", tmp_path / "a.html"
    trace.write_text('{"arrival_seconds": 0, "prompt_tokens": 300, "output_tokens": 50}\n')
    asked = [f"--trace={trace}", "--gpu=l4=1", "--quantization=int4"]
    fixed = ["--scaler=fixed", "--fixed=l4=2", f"--html={page}"]
    (tmp_path / "one.yaml").write_text("[{name: a}]")
    services = [f"--services={tmp_path / 'one.yaml'}"]
    told = ""
    for one in (["plan", *asked], ["simulate", *asked, *fixed], ["simulate", *asked, *services]):
        assert main(one) == 0
        told += "".join(capsys.readouterr())
    assert main(["plan", *asked, "--max-model-len=1"]) == 2
    told += capsys.readouterr().err
    for words in ("1 request in", "has 1 node:", "1 service of", "fits 1 token"):
        assert words in told
    assert not re.search(
        r"\b1 (requests|nodes|services|tokens|replicas)\b", told + page.read_text()
    )


def test_large_numbers_have_no_exponents(capsys: pytest.CaptureFixture[str]) -> None:
    asked = ["--generate=poisson", "--seconds=2", "--requests-per-second=12000"]
    assert main(["plan", *asked, "--gpu=h100"]) == 0
    told = capsys.readouterr().out
    assert re.match(r"poisson, 12000 requests/s, .* 24000 requests in 2 s, \d{5} a second\n", told)
    assert "e+0" not in told


def test_a_long_plan_says_how_far_it_is(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(progress, "LINE_SECONDS", 0.0)
    assert main(["plan", *INT4, "--window", "10s"]) == 0
    told = capsys.readouterr()
    shares = re.findall(r"^quire plan: (\d+)% of all windows after \d+ s$", told.err, re.MULTILINE)
    assert len(shares) == 8
    assert shares == sorted(shares, key=int)
    assert shares[-1] == "100"
    assert "of all windows" not in told.out


def test_a_page_tells_settings_as_they_were_given(tmp_path: Path) -> None:
    path, event = tmp_path / "a.html", ["--event", "5:kill:l4:0.5"]
    fixed = ["--scaler", "fixed", "--fixed", "l4=2", "--gpu", "l4=4@0.9"]
    assert main(["simulate", *INT4, *fixed, *event, "--html", f"{path}"]) == 0
    page = path.read_text()
    for name, value in (("gpu", "l4=4@0.9"), ("event", "5:kill:l4:0.5"), ("fixed", "l4=2")):
        assert f"<th>--{name}</th><td>{value}</td>" in page
    assert "None" not in page


def test_a_recorded_trace_is_planned_for(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "trace.jsonl"
    rows = [
        {"arrival_seconds": at * 0.5, "prompt_tokens": 500 + at, "output_tokens": 100}
        for at in range(1200)
    ]
    rows.append({"arrival_seconds": 600.0, "prompt_tokens": 20_000, "output_tokens": 1})
    path.write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    result = tmp_path / "plan.json"
    arguments = ["plan", "--trace", f"{path}", "--windows", "--json", f"{result}"]
    assert main([*arguments, "--gpu", "l4,h100=1@6.50", "--quantization", "int4"]) == 0
    told = capsys.readouterr()
    assert "1 of 1201 requests is longer than 8192 tokens" in told.err
    assert "for the mean of all traffic" in told.out
    document = json.loads(result.read_text())
    assert len(document["mix"]) == 2
    assert document["singles"].keys() == {"l4", "h100"}
    assert all(window["replicas"]["h100"] <= 1 for window in document["mix"])


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "say what is asked: --trace FILE, or --generate"),
        (["--trace", "no.csv"], "cannot read the trace no.csv"),
        (["--trace", "no.csv", "--generate", "poisson"], "leave one of them out"),
        ([*SMALL, "--max-model-len", "9000"], "takes 8192 tokens, not 9000"),
        (SMALL, "no GPU can serve llama3-8b as promised: l4: one request alone takes 61 ms"),
        (
            [*INT4, "--slo-time-per-output-token", "0.001ms"],
            "a token, and the SLO asks for 0.001 ms",
        ),
        ([*INT4, "--event", "5:kill:h100"], "--event names h100, which does not serve here"),
        ([*INT4, "--spot", "a100=1"], "--spot names a100"),
        (
            [*SMALL, "--gpu", "l4,h100", "--event", "5:kill:l4"],
            "there are h100; l4 is left out: one request alone takes 61 ms a token",
        ),
        ([*INT4, "--json", "no/folder/a.json"], "there is no folder"),
        ([*INT4, "--scaler", "fixed"], "needs --fixed"),
        ([*INT4, "--seconds", "0.1"], "no traffic"),
    ],
)
def test_what_is_wrong_is_said(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["simulate", *arguments]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gpu", "l5"], "unknown GPU 'l5'"),
        (["--model", "gpt-9"], "unknown model shape 'gpt-9'"),
        (["--model", "openai/gpt-9"], "unknown model shape 'openai/gpt-9': choose one of smollm2"),
        (["--gpu", "l4,l4=2"], "names a GPU twice"),
        (["--gpu", "l4=0"], "no whole number of at least 1"),
        (["--gpu", "l4@free"], "no number from"),
        (["--event", "soon:kill:l4"], "write SECONDS:KIND:GPU"),
        (["--event", "5:kill:gateways"], "can only fall silent"),
        (["--event", "5:vanish:l4:0.5"], "leave the share out"),
        (["--event", "5:silence:gateways:0.5"], "leave the share out"),
        (["--event", "5:melt:l4"], "kinds are kill, reclaim"),
        (["--scaler", "quire,best"], "there is no best"),
        (["--slo-time-to-first-token", "soon"], "is not a time"),
        (["--slo-time-to-first-token", "0s"], "no time above 0"),
        (["--percentile", "100"], "no whole number from 50 to 99"),
    ],
)
def test_wrong_flags_are_named(
    arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        main(["simulate", *arguments])
    assert message in capsys.readouterr().err
