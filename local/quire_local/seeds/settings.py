"""The seed's parameters: names, defaults and ranges, as its documents give them."""

from dataclasses import dataclass, field, fields
from typing import Annotated, Literal, get_args, get_type_hints

from msgspec import Meta

from quire_engine.config.fields import Setting, documentation
from quire_engine.config.kinds import BlockSize, Count, Port, Share, Text


@dataclass(frozen=True, kw_only=True)
class Limits:
    """The engine's parameters: flags, and the top of the configuration file."""

    block_size: BlockSize = 16
    """Tokens per physical block."""
    max_num_blocks: Annotated[int, Meta(ge=2)] = 1024
    """Total physical blocks."""
    max_batch_size: Count = 32
    """Most sequences per batch."""
    max_num_seqs: Count = 256
    """Most sequences; no more than the smaller of this and max_batch_size run at a time."""
    max_model_len: Annotated[int, Meta(ge=2)] = 2048
    """Longest context of the model."""
    max_total_tokens: Count = 4096
    """Most tokens per batch."""
    memory_threshold: Share = 0.9
    """Memory pressure up to which requests are let in, in (0, 1]."""
    max_retry_attempts: Annotated[int, Meta(ge=0)] = 2
    """Times that a failed batch is tried again."""


@dataclass(frozen=True, kw_only=True)
class TokenizerChoice:
    """The file's section "tokenizer"."""

    kind: Literal["simple", "huggingface"] = "simple"
    """How text becomes tokens."""
    path: Text | None = None
    """A tokenizer.json, with kind huggingface."""


@dataclass(frozen=True, kw_only=True)
class CommandChoice:
    """The file's section "command" of a backend."""

    program: Text
    """What is run for each request."""
    args: tuple[str, ...] = ()
    """Its arguments."""


@dataclass(frozen=True, kw_only=True)
class BackendChoice:
    """The file's section "backend" of "serving"."""

    kind: Literal["local_engine", "command_bridge"] = "local_engine"
    """What answers."""
    command: CommandChoice | None = None
    """With kind command_bridge."""


@dataclass(frozen=True, kw_only=True)
class Serving:
    """The file's section "serving"."""

    host: Text = "127.0.0.1"
    """Address to listen on."""
    port: Port = 3000
    """Port to listen on."""
    model_name: Text = "hetero-infer"
    """What clients put in "model"."""
    backend: BackendChoice = field(default_factory=BackendChoice)
    """Which kind of engine."""


@dataclass(frozen=True, kw_only=True)
class SeedConfig:
    """All that the file and the flags say."""

    limits: Limits = field(default_factory=Limits)
    tokenizer: TokenizerChoice | None = None
    """None where the file has no such section: the model's own tokenizer is used."""
    serving: Serving = field(default_factory=Serving)


_SECTIONS_INSIDE = ("args", "backend", "command")


def plain_settings(owner: type) -> dict[str, Setting]:
    """The settings of a section that are single values, by name."""
    hints, texts = get_type_hints(owner, include_extras=True), documentation(owner)
    return {
        item.name: _setting(item.name, hints[item.name], item.default, texts[item.name])
        for item in fields(owner)
        if item.name not in _SECTIONS_INSIDE
    }


def _setting(name: str, annotation: object, default: object, text: str) -> Setting:
    members = get_args(annotation)
    is_optional = type(None) in members
    return Setting(
        section="",
        name=name,
        accepts=members[0] if is_optional else annotation,
        is_optional=is_optional,
        default=default,
        help=text,
    )
