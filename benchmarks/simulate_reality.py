"""Whether the simulator is right: a part of a trace through real processes, and in virtual time.

`python -m benchmarks.simulate_reality [--seconds S] [--json FILE]` starts `quire up` with two
simulated L4 engines and the gateway in front, sends the first requests of the chat trace that
QUIRE_TRACE names (or of a generated one) at their times, and replays what was really sent on the
same fleet in `quire simulate`. Ratios are virtual / real; 1 is the goal, within a tenth.
"""

import argparse
import asyncio
import json
import os
import random
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import httpx

from quire_engine.profiles.traces import TraceRequest, multiply_rate, read_trace
from quire_local.simulate.hardware import EngineType, ServiceLevel, make_engine_type
from quire_local.simulate.jobs import Fate, Job
from quire_local.simulate.scalers.fixed import FixedScaler
from quire_local.simulate.simulation import Scenario, Simulation
from quire_local.simulate.workload import generate_workload

_SLO = ServiceLevel(first_token_seconds=4.0, per_token_seconds=0.15)
_MAX_MODEL_LEN = 8192
_LONGEST_PROMPT, _LONGEST_OUTPUT = 4000, 400
_START_SECONDS = 120.0
_SERVICE = f"""\
apiVersion: serving.quire.dev/v1alpha1
kind: InferenceService
metadata: {{name: llama}}
spec:
  replicas: 2
  model: {{source: "hf://meta-llama/Llama-3-8B", maxModelLen: {_MAX_MODEL_LEN}}}
  engine: {{maxNumBatchedTokens: 8192, maxNumSeqs: 256, extraArgs: ["--no-enable-prefix-caching"]}}
  accelerators: [{{name: l4, products: [NVIDIA-L4], minReplicas: 2, maxReplicas: 2}}]
  scaling:
    minReplicas: 2
    maxReplicas: 2
    slo: {{timeToFirstToken: 4s, timePerOutputToken: 150ms}}
"""


@dataclass(frozen=True, kw_only=True)
class Sent:
    """One request as it really went; seconds since the first."""

    at: float
    num_prompt_tokens: int
    num_output_tokens: int
    first_token_seconds: float
    seconds: float


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    # of fewer minutes the 95th percentile lies where long prompts begin: at 0.4 or at 0.9 s
    parser.add_argument("--seconds", type=float, default=180.0)
    parser.add_argument("--requests-per-second", type=float, default=1.5)
    parser.add_argument("--json", type=Path)
    options = parser.parse_args()
    trace = _part(options.seconds, options.requests_per_second)
    sent, num_refused, used = _run_really(trace)
    jobs = _run_virtually(sent)
    figures = _compare(sent, jobs) | {
        "num_requests": len(trace),
        "num_refused": num_refused,
        "cores_used": used,
        "load_average": os.getloadavg()[1],
    }
    for name, value in figures.items():
        print(f"{name:32s} {value:10.3f}")
    if options.json:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


def _part(seconds: float, rate: float) -> list[TraceRequest]:
    """The first requests, at about this rate."""
    path = os.environ.get("QUIRE_TRACE")
    if path:
        trace = read_trace(path)
    else:
        made = generate_workload("poisson", requests_per_second=5.5, seconds=600.0, seed=0)
        trace = list(made.trace)
    known = len(trace) / trace[-1].arrival_seconds
    thinned = multiply_rate(trace, min(rate / known, 1.0), random.Random(0))
    return [
        TraceRequest(
            one.arrival_seconds,
            min(one.num_prompt_tokens, _LONGEST_PROMPT),
            min(one.num_output_tokens, _LONGEST_OUTPUT),
        )
        for one in thinned
        if one.arrival_seconds <= seconds
    ]


def _run_really(trace: Sequence[TraceRequest]) -> tuple[list[Sent], int, float]:
    """Serve it with `quire up`.

    Returns
    -------
    The answers, how many were refused, and how many cores all processes used, starts included.
    """
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "service.yaml"
        file.write_text(_SERVICE)
        command = [sys.executable, "-m", "quire_local.cli", "up", "-f", f"{file}"]
        flags = ["--simulate", "l4=2", "--port", f"{port}", "--page-port", "0", "--quiet"]
        process = subprocess.Popen(
            [*command, *flags], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        began = time.monotonic()
        try:
            sent, num_refused = asyncio.run(_send_all(f"http://127.0.0.1:{port}", trace))
        finally:
            process.terminate()
            process.wait(60)
    times = os.times()
    used = times.user + times.system + times.children_user + times.children_system
    return sent, num_refused, used / (time.monotonic() - began)


async def _send_all(url: str, trace: Sequence[TraceRequest]) -> tuple[list[Sent], int]:
    async with httpx.AsyncClient(base_url=url, timeout=120.0) as client:
        await _wait_ready(client)
        clock = time.monotonic()
        tasks = []
        for one in trace:
            await asyncio.sleep(max(clock + one.arrival_seconds - time.monotonic(), 0.0))
            tasks.append(asyncio.create_task(_send(client, one, clock)))
        answers = await asyncio.gather(*tasks)
    known = [one for one in answers if one is not None]
    return known, len(answers) - len(known)


async def _wait_ready(client: httpx.AsyncClient) -> None:
    """Until both engines have answered."""
    until = time.monotonic() + _START_SECONDS
    while time.monotonic() < until:
        try:
            body = {"model": "llama", "prompt": "x", "max_tokens": 1}
            answers = await asyncio.gather(
                *(client.post("/v1/completions", json=body) for _ in range(4))
            )
            if all(answer.status_code == 200 for answer in answers):
                await asyncio.sleep(5.0)
                return
        except httpx.TransportError:
            pass
        await asyncio.sleep(1.0)
    raise SystemExit("quire up was not ready in time")


async def _send(client: httpx.AsyncClient, one: TraceRequest, clock: float) -> Sent | None:
    body = {
        "model": "llama",
        # gateways send prompts that begin alike to one engine, and virtual ones have no text
        "prompt": f"{one.arrival_seconds:.6f}".ljust(one.num_prompt_tokens, "a"),
        "max_tokens": one.num_output_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    began, first, usage = time.monotonic(), None, None
    async with client.stream("POST", "/v1/completions", json=body) as answer:
        if answer.status_code != 200:
            await answer.aread()
            return None
        async for line in answer.aiter_lines():
            if not line.startswith("data: {"):
                continue
            first = first or time.monotonic()
            if '"usage":{' in line.replace(" ", ""):
                usage = json.loads(line[6:])["usage"] or usage
    if first is None or usage is None:
        return None
    return Sent(
        at=began - clock,
        num_prompt_tokens=usage["prompt_tokens"],
        num_output_tokens=usage["completion_tokens"],
        first_token_seconds=first - began,
        seconds=time.monotonic() - began,
    )


def _run_virtually(sent: Sequence[Sent]) -> list[Job]:
    kind = make_engine_type(
        "l4", "llama3-8b", quantization="none", max_model_len=_MAX_MODEL_LEN, slo=_SLO
    )
    if not isinstance(kind, EngineType):
        raise SystemExit(kind.reason)
    scenario = Scenario(
        trace=[TraceRequest(one.at, one.num_prompt_tokens, one.num_output_tokens) for one in sent],
        types=[kind],
        max_model_len=_MAX_MODEL_LEN,
        slo=_SLO,
        max_tokens=1,  # what clients ask for is what they get
    )
    simulation = Simulation(scenario, FixedScaler({"l4": 2}), lambda _: None)
    simulation.run()
    return simulation.jobs


def _compare(sent: Sequence[Sent], jobs: Sequence[Job]) -> dict[str, float]:
    """Ratios, virtual to real."""
    answered = [job for job in jobs if job.fate is Fate.ANSWERED]
    real_first = sorted(one.first_token_seconds for one in sent)
    first = sorted(job.first_token_seconds for job in answered)
    real_end = max(one.at + one.seconds for one in sent)
    end = max(job.ended_at or 0.0 for job in answered)
    real_rate = sum(one.num_output_tokens for one in sent) / real_end
    rate = sum(job.num_received for job in answered) / end
    figures = {"throughput_ratio": rate / real_rate, "real_tokens_per_second": real_rate}
    for share in (0.5, 0.95, 0.99):
        real, virtual = _quantile(real_first, share), _quantile(first, share)
        figures[f"first_token_p{round(100 * share)}_ratio"] = virtual / real
        figures[f"real_first_token_p{round(100 * share)}_seconds"] = real
    real_each = [
        _pace(one.seconds - one.first_token_seconds, one.num_output_tokens) for one in sent
    ]
    each = [job.per_token_seconds for job in answered if job.num_received > 1]
    figures["mean_token_ratio"] = (sum(each) / len(each)) / (sum(real_each) / len(real_each))
    return figures


def _pace(seconds: float, num_tokens: int) -> float:
    return seconds / max(num_tokens - 1, 1)


def _quantile(values: Sequence[float], share: float) -> float:
    return values[min(int(share * len(values)), len(values) - 1)]


if __name__ == "__main__":
    main()
