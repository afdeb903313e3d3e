"""Those that the CPU benchmark compares; each runs in a process of its own and reports there."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from benchmarks.cpu_kernels import measure

BATCHES = (1, 8)
PROMPT = 512
CONTEXT = 64
MAX_MODEL_LEN = 1024
FIRST_TOKEN = 100

Results = dict[str, Any]


def run_quire(model: Path, threads: int, dtype: Any, section: str, spawned_at: float) -> Results:  # noqa: ANN401
    """The executor as the engine has it: greedy steps, sampled tokens fed back."""
    from quire_engine.config import EngineConfig, ExecutorConfig, ModelConfig
    from quire_engine.execution.base import Batch, Chunks, StartedRow
    from quire_engine.execution.factory import create_executor
    from quire_engine.protocol.sampling import SamplingParams
    from quire_engine.tokenizing.loading import load_tokenizer

    config = EngineConfig(
        model=ModelConfig(dtype=dtype, max_model_len=MAX_MODEL_LEN),
        executor=ExecutorConfig(num_threads=threads, device="cpu"),
    )
    executor = create_executor(config, model)
    executor.load(lambda *_: None)
    executor.allocate_cache()
    load_tokenizer(model)
    if section == "start":
        return {"start_seconds": round(time.time() - spawned_at, 2)}
    results: Results = {}
    greedy = SamplingParams(max_tokens=MAX_MODEL_LEN, temperature=0.0)
    blocks = MAX_MODEL_LEN // config.cache.block_size

    def prefill(batch: int, length: int) -> None:
        tokens = list(range(FIRST_TOKEN, FIRST_TOKEN + length))
        started = [
            StartedRow(row, tokens, list(range(1 + row * blocks, 1 + (row + 1) * blocks)), greedy,
                       length, 0)
            for row in range(batch)
        ]  # fmt: skip
        rows = list(range(batch))
        chunks = Chunks(rows, [0] * batch, [length] * batch, [True] * batch, 0)
        executor.run(Batch(started=started, chunks=chunks, total_tokens=batch * length))

    if section == "prefill":
        return {"prefill": measure(lambda: prefill(1, PROMPT), 3)}
    for batch in BATCHES:
        prefill(batch, CONTEXT)
        positions = iter(range(CONTEXT, MAX_MODEL_LEN))

        def decode(batch: int = batch, positions: Any = positions) -> None:  # noqa: ANN401
            rows, start = list(range(batch)), next(positions)
            chunks = Chunks(rows, [start] * batch, [1] * batch, [True] * batch, batch)
            executor.run(Batch(chunks=chunks, total_tokens=batch))

        results[f"decode_{batch}"] = measure(decode)
    return results | {"peak_memory_mb": peak_memory_mb()}


def run_transformers(model: Path, threads: int) -> Results:
    """Transformers on the same file: float32, its KV cache, greedy."""
    import torch
    from transformers import AutoModelForCausalLM

    torch.set_num_threads(threads)
    reference: Any = AutoModelForCausalLM.from_pretrained(
        str(model.parent), gguf_file=model.name, dtype=torch.float32
    )
    results: Results = {}

    @torch.inference_mode()
    def decoding(batch: int) -> Callable[[], None]:
        prompt = torch.arange(FIRST_TOKEN, FIRST_TOKEN + CONTEXT).repeat(batch, 1)
        state = reference(prompt, use_cache=True, logits_to_keep=1)

        @torch.inference_mode()
        def decode() -> None:
            nonlocal state
            newest = state.logits[:, -1:].argmax(dim=-1)
            state = reference(newest, past_key_values=state.past_key_values, use_cache=True)

        return decode

    for batch in BATCHES:
        results[f"decode_{batch}"] = measure(decoding(batch), 8)
    return results | {"peak_memory_mb": peak_memory_mb()}


def peak_memory_mb() -> float:
    """Most memory that this process held since it began; mapped files count while they are in."""
    lines = Path("/proc/self/status").read_text().splitlines()
    kilobytes = next(line.split()[1] for line in lines if line.startswith("VmHWM"))
    return round(int(kilobytes) / 1024, 1)
