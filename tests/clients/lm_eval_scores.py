"""lm-eval's log-likelihoods over HTTP, against those that it computes with transformers.

Each item is a context and its continuation out of a fixed text. The server is asked for an echo
with scores and no text of its own; transformers has the same weights, in float32 as the server.
"""

import json
import random
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from quire_engine.config import EngineConfig
from quire_engine.sources.factory import resolve
from tests.clients.environments import run
from tests.clients.errors import ClientError

NUM_ITEMS = 200
MAX_ERROR_PER_TOKEN = 1e-3
TASK = "fixed_items"
_TEXT = Path(__file__).parents[2] / "benchmarks" / "data" / "technical.txt"
_OFFLINE = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "TOKENIZERS_PARALLELISM": "false"}


def verify(url: str, python: Path) -> str:
    """Score all items both ways.

    Parameters
    ----------
    python
        Of an environment with lm-eval, PyTorch and transformers.

    Raises
    ------
    ClientError
        A score differs, or is not there.
    """
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        _write_task(folder)
        tokenizer = _write_model(folder / "model")
        over_http = (
            f"model=SmolLM2-135M-Instruct.Q4_1,base_url={url}/v1/completions,"
            f"tokenizer={folder}/model,num_concurrent=4,max_retries=1,max_length=1024"
        )
        ours = _score(python, folder, "local-completions", over_http)
        theirs = _score(python, folder, "hf", f"pretrained={folder}/model,dtype=float32")
    worst = 0.0
    for item in range(NUM_ITEMS):
        num_tokens = len(tokenizer(ours[item].continuation)["input_ids"])
        worst = max(worst, abs(ours[item].score - theirs[item].score) / num_tokens)
    num_unlike = sum(ours[item].is_greedy != theirs[item].is_greedy for item in range(NUM_ITEMS))
    if worst > MAX_ERROR_PER_TOKEN or num_unlike:
        raise ClientError(
            f"scores differ by {worst:.2e} a token, and {num_unlike} are greedy one way only"
        )
    return f"{NUM_ITEMS} log-likelihoods differ by at most {worst:.1e} a token from transformers'"


class Score:
    """What lm-eval says of one item."""

    def __init__(self, sample: dict[str, Any]) -> None:
        [[score, is_greedy]] = sample["filtered_resps"]
        self.score = float(score)
        self.is_greedy = str(is_greedy) == "True"
        self.continuation: str = sample["target"]


def _items() -> Iterator[dict[str, str]]:
    words = _TEXT.read_text().split()
    rng = random.Random(0)
    for _ in range(NUM_ITEMS):
        start = rng.randrange(len(words) - 80)
        middle = start + rng.randrange(4, 60)
        end = middle + rng.randrange(1, 13)
        continuation = " " + " ".join(words[middle:end])
        yield {"context": " ".join(words[start:middle]), "continuation": continuation}


def _write_task(folder: Path) -> None:
    data = folder / "items.jsonl"
    data.write_text("".join(json.dumps(item) + "\n" for item in _items()))
    task = {
        "task": TASK,
        "dataset_path": "json",
        "dataset_kwargs": {"data_files": {"test": str(data)}},
        "test_split": "test",
        "output_type": "loglikelihood",
        "doc_to_text": "{{context}}",
        "doc_to_target": "{{continuation}}",
        "target_delimiter": "",
        "metric_list": [{"metric": "perplexity", "aggregation": "perplexity"}],
    }
    (folder / f"{TASK}.yaml").write_text(json.dumps(task))  # JSON is YAML


def _write_model(folder: Path) -> Any:
    """Write the served model's weights and tokenizer as transformers' own files."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils import logging as transformers_logging

    transformers_logging.disable_progress_bar()  # type: ignore[no-untyped-call]

    path = resolve(EngineConfig().model.source).path
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tokenizer = AutoTokenizer.from_pretrained(str(path.parent), gguf_file=path.name)
        model: Any = AutoModelForCausalLM.from_pretrained(
            str(path.parent), gguf_file=path.name, dtype=torch.float32
        )
    model.hf_quantizer = None  # its weights are float32 now, which it denies
    del model.config.quantization_config
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return tokenizer


def _score(python: Path, folder: Path, model: str, arguments: str) -> dict[int, Score]:
    results = folder / model
    flags = ["--model", model, "--model_args", arguments, "--tasks", TASK, "--batch_size", "4"]
    places: list[str | Path] = ["--include_path", folder, "--output_path", results]
    env = _OFFLINE | {"HF_HOME": str(folder / "huggingface")}
    run([python, "-m", "lm_eval", "run", *flags, *places, "--log_samples"], env=env)
    [samples] = results.rglob("samples_*.jsonl")
    lines = map(json.loads, samples.read_text().splitlines())
    scores = {int(sample["doc_id"]): Score(sample) for sample in lines}
    if scores.keys() != set(range(NUM_ITEMS)):
        raise ClientError(f"{model} scored {len(scores)} items of {NUM_ITEMS}")
    return scores
