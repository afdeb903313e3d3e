"""From a configuration to an executor and a tokenizer, in this process."""

from quire_engine.config import EngineConfig
from quire_engine.errors import ConfigError
from quire_engine.execution.base import Executor, Progress
from quire_engine.execution.factory import create_executor
from quire_engine.models.generation_defaults import GenerationDefaults
from quire_engine.server.model_files import choose_defaults, choose_tokenizer, find_model
from quire_engine.tokenizing.tokenizer import Tokenizer


def load(
    config: EngineConfig, executor: Executor | None, progress: Progress
) -> tuple[Executor, Tokenizer, GenerationDefaults]:
    """Fetch the model if need be; the executor's weights are not read yet.

    Raises
    ------
    ConfigError
        A command is to answer, which only the server can ask.
    QuireError
        The model cannot be fetched, or its tokenizer cannot be read.
    """
    if config.executor.command is not None:
        raise ConfigError("command answers through the server alone: use quire serve, or remove it")
    model = find_model(config, progress)
    path = None if model is None else model.path
    defaults = choose_defaults(config, path)
    return executor or create_executor(config, path), choose_tokenizer(config, path), defaults
