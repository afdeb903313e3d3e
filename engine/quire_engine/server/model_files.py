"""Where the model's files and its tokenizer come from."""

from pathlib import Path

from quire_engine.config import EngineConfig
from quire_engine.execution.base import Progress
from quire_engine.models.generation_defaults import GenerationDefaults, read_generation_defaults
from quire_engine.sources.base import ResolvedModel
from quire_engine.tokenizing.template_file import read_template
from quire_engine.tokenizing.tokenizer import Tokenizer


def find_model(config: EngineConfig, report: Progress) -> ResolvedModel | None:
    """Fetch the model if need be; a simulated one and a command have no files.

    Raises
    ------
    SourceError
        The model cannot be fetched, verified or stored.
    """
    if config.executor.simulate is not None or config.executor.command is not None:
        return None
    from quire_engine.sources import resolve

    model = config.model
    return resolve(
        model.source,
        sha256=model.sha256,
        progress=report,
        hf_token_file=model.hf_token_file,
        max_download_bytes=model.max_download_bytes,
    )


def choose_defaults(config: EngineConfig, model_path: Path | None) -> GenerationDefaults:
    """Read how the model's makers want it sampled, unless that is turned off.

    Raises
    ------
    ModelError
        They say what cannot be used.
    """
    if model_path is None or config.model.generation_config == "none":
        return GenerationDefaults()
    return read_generation_defaults(model_path)


def choose_tokenizer(config: EngineConfig, model_path: Path | None) -> Tokenizer:
    """Load the model's own tokenizer, the one that is configured, or the simple one.

    With the chat template that is configured, if one is.

    Raises
    ------
    ModelError
        The tokenizer's files are missing, damaged or not supported, or the template is.
    """
    tokenizer = _find_tokenizer(config, model_path)
    if config.model.chat_template is not None:
        tokenizer.use_template(read_template(config.model.chat_template))
    return tokenizer


def _find_tokenizer(config: EngineConfig, model_path: Path | None) -> Tokenizer:
    if config.model.tokenizer is not None:
        from quire_engine.tokenizing.file import load_tokenizer_file

        return load_tokenizer_file(Path(config.model.tokenizer).expanduser(), model_path)
    if model_path is None:
        from quire_engine.tokenizing.simple import build_simple_tokenizer

        return build_simple_tokenizer()
    from quire_engine.tokenizing.loading import load_tokenizer

    return load_tokenizer(model_path)
