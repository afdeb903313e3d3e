"""An engine that always has so many requests: prompts come one by one, beside the others' decodes.

Nothing of it is in the anchors: there all prompts come at once. Servers see this.
"""

from __future__ import annotations

import random
import time
from typing import Any

from quire_engine.core.engine import EngineCore
from quire_engine.execution.cuda.executor import CudaExecutor
from quire_engine.protocol.messages import AddRequest
from quire_engine.protocol.sampling import SamplingParams

NUM_REQUESTS = 256
WARM_SECONDS, SECONDS = 4.0, 7.0


def measure_closed_loop(core: EngineCore, executor: CudaExecutor) -> dict[str, Any]:
    """Tokens per second with graphs of steps with prompts, and without, one after the other."""
    graphs = executor._allocated().prompt_graphs
    core.in_flight.overlaps = True
    before = graphs.num_hits
    with_graphs = _run(core)
    num_hits = graphs.num_hits - before
    usual = graphs.find
    graphs.find = lambda *_sizes, **_kind: None  # type: ignore[method-assign]
    without = _run(core)
    graphs.find = usual  # type: ignore[method-assign]
    return {
        "out_tokens_per_s": with_graphs,
        "out_tokens_per_s_without_prompt_graphs": without,
        "gain": with_graphs / without,
        "prompt_steps_from_graphs": num_hits,
    }


def _run(core: EngineCore) -> float:
    rng = random.Random(7)
    begin = time.perf_counter()
    num_added = num_running = num_tokens = 0
    measured_from = 0.0
    while (now := time.perf_counter()) < begin + WARM_SECONDS + SECONDS:
        while num_running < NUM_REQUESTS:
            num_added += 1
            prompt = [rng.randrange(10000) for _ in range(rng.randint(100, 1024))]
            # the first ones are at any point of their lives
            most = 1024 if num_added > NUM_REQUESTS else rng.randint(101, 1024)
            sampling = SamplingParams(max_tokens=rng.randint(100, most), temperature=0.6)
            request = AddRequest(
                client_id="bench",
                request_id=f"closed-{num_added}",
                prompt_token_ids=prompt,
                sampling=sampling,
            )
            if (refusal := core.add(request, now)) is not None:
                raise RuntimeError(f"refused: {refusal}")
            num_running += 1
        deltas = core.step(now)
        num_running -= sum(delta.finish_reason is not None for _, delta in deltas)
        if now > begin + WARM_SECONDS:
            measured_from = measured_from or now
            num_tokens += sum(len(delta.token_ids) for _, delta in deltas)
    seconds = time.perf_counter() - measured_from
    core.abort_client("bench")
    while core.has_work():
        core.step(time.perf_counter())
    return num_tokens / seconds
