"""One executor and one oracle for all parity tests; the ties they find are shown at the end."""

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from quire_engine.config import (
    CacheConfig,
    EngineConfig,
    ExecutorConfig,
    ModelConfig,
    SchedulerConfig,
)
from quire_engine.execution.base import Executor
from quire_engine.execution.factory import create_executor
from quire_engine.execution.torch_cpu.executor import TorchExecutor
from quire_engine.protocol.messages import ModelFacts
from quire_engine.sources.factory import resolve
from quire_engine.tokenizing.loading import load_tokenizer
from quire_engine.tokenizing.tokenizer import Tokenizer
from tests.engine.parity.oracle import Oracle
from tests.engine.parity.prompts import PROMPTS

Outputs = list[list[int]]

# one thread: two of them mostly wait for each other when other processes want the cores
CONFIG = EngineConfig(
    executor=ExecutorConfig(num_threads=1),
    model=ModelConfig(max_model_len=512, dtype="float32"),
    cache=CacheConfig(max_num_blocks=600),
    scheduler=SchedulerConfig(max_num_seqs=32),
)

_report: list[str] = []


@dataclass
class Judge:
    """Checks outputs by the oracle, each distinct one once."""

    oracle: Oracle
    prompts: list[list[int]]
    verdicts: dict[tuple[int, tuple[int, ...]], int] = field(default_factory=dict)

    def check(self, way: str, outputs: Sequence[Sequence[int]]) -> None:
        """Check the output of each prompt and report how many tokens were ties."""
        ties = [self._num_ties(index, tuple(output)) for index, output in enumerate(outputs)]
        num_tokens = sum(map(len, outputs))
        _report.append(f"{way}: {num_tokens} tokens as transformers has them, {sum(ties)} at ties")

    def _num_ties(self, index: int, output: tuple[int, ...]) -> int:
        key = (index, output)
        if key not in self.verdicts:
            ties = self.oracle.check(self.prompts[index], output)
            _report.extend(f"prompt {index}: {tie}" for tie in ties)
            self.verdicts[key] = len(ties)
        return self.verdicts[key]


@pytest.fixture(scope="session")
def model_path() -> Path:
    return resolve(EngineConfig().model.source).path


@pytest.fixture(scope="session")
def tokenizer(model_path: Path) -> Tokenizer:
    return load_tokenizer(model_path)


@pytest.fixture(scope="session")
def prompts(tokenizer: Tokenizer) -> list[list[int]]:
    return [tokenizer.encode(text) for text in PROMPTS]


@pytest.fixture(scope="session")
def loaded(model_path: Path) -> Iterator[tuple[Executor, ModelFacts]]:
    executor = create_executor(CONFIG, model_path)
    executor.load(lambda _stage, _fraction: None)
    yield executor, executor.allocate_cache()
    executor.close()


@pytest.fixture(scope="session")
def loaded_torch(model_path: Path) -> Iterator[tuple[Executor, ModelFacts]]:
    """What computes where the C++ kernels cannot be used."""
    executor = TorchExecutor(CONFIG, model_path)
    executor.load(lambda _stage, _fraction: None)
    yield executor, executor.allocate_cache()
    executor.close()


@pytest.fixture(scope="session")
def judge(model_path: Path, prompts: list[list[int]]) -> Judge:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return Judge(Oracle(model_path), prompts)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    if _report:
        terminalreporter.section("token parity with transformers")
        for line in _report:
            terminalreporter.line(line)
