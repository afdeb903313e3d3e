import gzip
import io
import random
import statistics
from itertools import pairwise
from pathlib import Path

import pytest

from quire_engine.errors import ConfigError
from quire_engine.profiles.traces import TraceRequest, read_trace, scale_rate
from quire_engine.profiles.traffic import CHAT, LengthMix, generate_trace, long_outputs

HEADING = "TIMESTAMP,ContextTokens,GeneratedTokens\r\n"
AZURE = HEADING + (
    "2023-11-16 18:15:46.6805900,374,44\r\n"
    "2023-11-16 18:15:50.9951690,396,109\r\n"
    "\r\n"
    "2023-11-16 18:16:50.9951690,879,55\r\n"
)


def test_the_azure_format_is_read_and_time_starts_at_zero() -> None:
    first, second, third = read_trace(io.StringIO(AZURE))
    assert first == TraceRequest(0.0, 374, 44)
    assert (second.num_prompt_tokens, second.num_output_tokens) == (396, 109)
    assert second.arrival_seconds == pytest.approx(4.314579, abs=1e-5)
    assert third.arrival_seconds == pytest.approx(64.314579, abs=1e-5)


def test_columns_may_come_in_any_order_and_with_others() -> None:
    rows = "id,GeneratedTokens,ContextTokens,TIMESTAMP\n1,5,7,2024-05-10 00:00:00.009930+00:00\n"
    assert read_trace(io.StringIO(rows)) == [TraceRequest(0.0, 7, 5)]


def test_json_lines_are_read() -> None:
    rows = (
        '{"arrival_seconds": 3.5, "prompt_tokens": 10, "output_tokens": 2}\n'
        '{"arrival_seconds": 4.0, "prompt_tokens": 11, "output_tokens": 3}\n'
    )
    assert read_trace(io.StringIO(rows)) == [TraceRequest(0.0, 10, 2), TraceRequest(0.5, 11, 3)]


def test_a_path_is_read(tmp_path: Path) -> None:
    path = tmp_path / "trace.csv"
    path.write_text("\ufeff" + AZURE, encoding="utf-8")
    assert len(read_trace(path)) == len(read_trace(str(path))) == 3


def test_a_packed_file_is_read_and_one_that_was_cut_is_an_error(tmp_path: Path) -> None:
    plain, packed = tmp_path / "trace.csv", tmp_path / "trace.csv.gz"
    plain.write_text(AZURE, newline="")
    packed.write_bytes(gzip.compress(AZURE.encode()))
    assert read_trace(packed) == read_trace(plain)

    packed.write_bytes(packed.read_bytes()[:-12])
    with pytest.raises(ConfigError, match="cannot read the trace"):
        read_trace(packed)


def json_row(arrival: str = "1.0", prompt: str = "5", extra: str = "") -> str:
    return (
        f'{{"arrival_seconds": {arrival}, "prompt_tokens": {prompt}, "output_tokens": 5{extra}}}\n'
    )


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "trace is empty"),
        ("\n \n", "trace is empty"),
        (HEADING, "a heading and no requests"),
        ("time,in,out\n1,2,3\n", r"line 1: looks like CSV without a known heading .*TIMESTAMP,"),
        ("TIMESTAMP,In\n1,2\n", "line 1: looks like CSV, and column ContextTokens is missing"),
        ("[" + json_row() + "]", "line 1: looks like a JSON array, not lines"),
        ("x" * 99 + "\n", f"line 1: looks like '{'x' * 40}...', which is no trace; write CSV"),
        (HEADING + "\n2023-11-16 18:15:46\n", "line 3: 1 cell under 3 columns"),
        (HEADING + "2023-11-16 18:15:46,374\n", "line 2: 2 cells under 3 columns"),
        (HEADING + "yesterday,374,44\n", "line 2: TIMESTAMP must look like .* not 'yesterday'"),
        (HEADING + "\n2023-11-16 18:15:46,many,44\n", "line 3: ContextTokens must be a whole"),
        (HEADING + "2023-11-16 18:15:46,374,4.5\n", "line 2: GeneratedTokens must be a whole"),
        (HEADING + "2023-11-16 18:15:46,374,-4\n", "line 2: GeneratedTokens must be a whole"),
        (HEADING + "2023-11-16 18:15:46,0,44\n", "line 2: .* 1 to 10000000 tokens"),
        (HEADING + f"2023-11-16 18:15:46,{'9' * 5000},4\n", "line 2: ContextTokens"),
        (
            HEADING + "2023-11-16 18:15:46,1,1\n2023-11-16 18:15:45,1,1\n",
            "line 3: arrives before the request above it",
        ),
        (json_row() + "{", "line 2: .*truncated"),
        (json_row() + json_row(prompt='"x"'), r"line 2: .*prompt_tokens"),
        (json_row(extra=', "user": "bob"'), "line 1: .*unknown field `user`"),
        (json_row(prompt="-1"), "line 1: .* 1 to 10000000 tokens"),
        (json_row() + json_row(arrival="0.5"), "line 2: arrives before"),
    ],
)
def test_bad_rows_are_named(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        read_trace(io.StringIO(text))


def test_a_mark_of_the_byte_order_is_no_part_of_either_format() -> None:
    for text in (AZURE, json_row()):
        assert read_trace(io.StringIO(f"\ufeff{text}")) == read_trace(io.StringIO(text))


def test_a_missing_or_binary_file_is_an_error_in_words(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read the trace .*missing\.csv"):
        read_trace(tmp_path / "missing.csv")
    binary = tmp_path / "binary.csv"
    binary.write_bytes(b"\xff\xfe\x00\x80")
    with pytest.raises(ConfigError, match="cannot read the trace"):
        read_trace(binary)


def test_scaling_the_rate_moves_arrivals_only() -> None:
    trace = read_trace(io.StringIO(AZURE))
    faster = scale_rate(trace, 2)
    assert [r.arrival_seconds * 2 for r in faster] == [r.arrival_seconds for r in trace]
    assert [r.num_prompt_tokens for r in faster] == [374, 396, 879]
    for factor in (0, -1, float("nan")):
        with pytest.raises(ConfigError, match="factor above 0"):
            scale_rate(trace, factor)


def draw(
    seed: int = 0, *, rate: float = 5.0, lengths: LengthMix = CHAT, burstiness: float = 1.0
) -> list[TraceRequest]:
    return generate_trace(
        random.Random(seed),
        num_requests=5000,
        requests_per_second=rate,
        lengths=lengths,
        burstiness=burstiness,
    )


def test_one_seed_is_one_trace() -> None:
    assert draw(3) == draw(3) != draw(4)


def test_generated_chat_has_the_lengths_of_chat() -> None:
    trace = draw()
    prompts = [r.num_prompt_tokens for r in trace]
    outputs = [r.num_output_tokens for r in trace]
    assert statistics.mean(prompts) == pytest.approx(1155, rel=0.05)
    assert statistics.mean(outputs) == pytest.approx(211, rel=0.05)
    # quartiles of the recorded trace
    assert statistics.quantiles(prompts, n=4) == pytest.approx([396, 1020, 1189], rel=0.06)
    assert statistics.quantiles(outputs, n=4) == pytest.approx([85, 129, 395], rel=0.08)


@pytest.mark.parametrize("mean", [1350, 4000])
def test_long_outputs_have_the_mean_asked_for(mean: int) -> None:
    outputs = [r.num_output_tokens for r in draw(lengths=long_outputs(mean))]
    assert statistics.mean(outputs) == pytest.approx(mean, rel=0.05)


@pytest.mark.parametrize("burstiness", [0.0, 0.5, 1.0, 3.0])
def test_arrivals_have_the_rate_and_burstiness_asked_for(burstiness: float) -> None:
    times = [r.arrival_seconds for r in draw(rate=8.0, burstiness=burstiness)]
    gaps = [later - earlier for earlier, later in pairwise(times)]
    assert statistics.mean(gaps) == pytest.approx(1 / 8, rel=0.15)
    assert statistics.pstdev(gaps) * 8 == pytest.approx(burstiness, rel=0.15, abs=1e-9)


@pytest.mark.parametrize(
    "arguments",
    [
        {"num_requests": 0},
        {"requests_per_second": 0.0},
        {"requests_per_second": float("nan")},
        {"burstiness": -1.0},
        {"burstiness": float("nan")},
    ],
)
def test_impossible_traffic_is_refused(arguments: dict[str, float]) -> None:
    good: dict[str, float] = {"num_requests": 10, "requests_per_second": 1.0}
    with pytest.raises(ConfigError):
        generate_trace(random.Random(0), **(good | arguments))  # type: ignore[arg-type]
    with pytest.raises(ConfigError, match="mean output"):
        long_outputs(0)
