"""What each of the seed's parameters is here.

max_total_tokens              max_num_batched_tokens
memory_threshold              admission_ceiling (and background_ceiling, where that is above)
max_batch_size, max_num_seqs  max_num_seqs: the smaller of the two
model_name                    served_model_name; of a real model, an alias
tokenizer simple              a simulated engine with the simple tokenizer, for it has no model
tokenizer huggingface         the model folder that the file is in, else as simple
command_bridge                command
"""

import shlex
from dataclasses import dataclass
from pathlib import Path

from quire_engine.config.engine import AdmissionConfig
from quire_engine.errors import ConfigError
from quire_local.seeds.settings import Limits, SeedConfig, TokenizerChoice

Values = dict[str, object]
"""Values by the names of quire's own settings."""

_STAND_IN: Values = {
    "simulate": "h100",
    "model_shape": "llama3-8b",
    "simulated_step_seconds": 0.0,
}
"""An engine that makes up its text at once, as the seed's does."""


@dataclass(frozen=True)
class Mapped:
    """The seed's configuration in quire's terms."""

    values: Values
    has_model: bool
    """Whether a real model answers; else prompts are passed on as they are."""
    note: str | None = None
    """What the user may not expect."""


def map_config(config: SeedConfig, *, names_model: bool) -> Mapped:
    """Say it in quire's terms.

    Parameters
    ----------
    names_model
        Whether the user names a model besides: then it answers, with its own tokenizer.

    Raises
    ------
    ConfigError
        Two parameters contradict each other.
    """
    values = {**_limits(config.limits), **_address(config)}
    command = config.serving.backend.command
    if command is not None:
        if config.tokenizer is not None and config.tokenizer.kind != "simple":
            raise ConfigError("tokenizer.kind: a command_bridge is given text; use simple")
        words = shlex.join([command.program, *command.args])
        return Mapped({**values, "command": words, **_name(config)}, has_model=False)
    if names_model or config.tokenizer is None:
        return Mapped({**values, **_alias(config)}, has_model=True)
    return _by_tokenizer(config, config.tokenizer, values)


def _by_tokenizer(config: SeedConfig, tokenizer: TokenizerChoice, values: Values) -> Mapped:
    if tokenizer.path is None:
        note = (
            "tokenizer.kind simple belongs to no model: a simulated engine makes up the text; "
            "leave the tokenizer out, or name a model, for a real one"
        )
        return Mapped({**values, **_STAND_IN, **_name(config)}, has_model=False, note=note)
    path = Path(tokenizer.path).expanduser()
    if not path.is_file():
        raise ConfigError(f"tokenizer.path: there is no file {path}")
    if path.name == "tokenizer.json" and _is_model(path.parent):
        source = str(path.parent.absolute())
        return Mapped({**values, "source": source, **_alias(config)}, has_model=True)
    note = (
        f"{path} lies beside no weights (model.safetensors): a simulated engine makes up the "
        "text; put it into a model's folder, or name a model, for a real one"
    )
    values = {**values, **_STAND_IN, **_name(config), "tokenizer": str(path.absolute())}
    return Mapped(values, has_model=False, note=note)


def _is_model(folder: Path) -> bool:
    """Whether a folder has weights; its config.json may as well be the seed's own."""
    return any((folder / f"model.safetensors{ending}").exists() for ending in ("", ".index.json"))


def _limits(limits: Limits) -> Values:
    cap = min(limits.max_batch_size, limits.max_num_seqs)
    if limits.max_total_tokens < cap:
        raise ConfigError(
            f"max_total_tokens ({limits.max_total_tokens}) is less than the {cap} sequences that "
            "may run at a time: raise it, or lower max_batch_size"
        )
    background = min(AdmissionConfig.background_ceiling, limits.memory_threshold)
    return {
        "block_size": limits.block_size,
        "max_num_blocks": limits.max_num_blocks,
        "max_num_seqs": cap,
        "max_model_len": limits.max_model_len,
        "max_num_batched_tokens": limits.max_total_tokens,
        "admission_ceiling": limits.memory_threshold,
        "background_ceiling": background,
        "max_retry_attempts": limits.max_retry_attempts,
    }


def _address(config: SeedConfig) -> Values:
    return {"host": config.serving.host, "port": config.serving.port}


def _name(config: SeedConfig) -> Values:
    return {"served_model_name": config.serving.model_name}


def _alias(config: SeedConfig) -> Values:
    return {"model_aliases": config.serving.model_name}
