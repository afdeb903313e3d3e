"""Kinds of values that settings have: a type and the range it accepts.

A field of the configuration names one of these, and everything else follows from it: what the
reader accepts, what an error says is accepted, the command line's help, the reference page.
"""

from dataclasses import dataclass
from typing import Annotated, Literal

from msgspec import Meta


@dataclass(frozen=True)
class OneOf:
    """A number that is one of a few; the field's type stays int for those who calculate with it."""

    numbers: tuple[int, ...]


@dataclass(frozen=True)
class Several:
    """Text that may stand for several, with commas between; its flag takes several words."""


@dataclass(frozen=True)
class Secret:
    """Text that is never shown: not in errors, not in a hash."""


Count = Annotated[int, Meta(ge=1)]
"""How many of something, at least one."""
BlockCount = Annotated[int, Meta(ge=2, le=1 << 24)]
"""KV blocks: the second is the first that can be used, and far more than any GPU holds is a slip
that would take the host's memory."""
Port = Annotated[int, Meta(ge=0, le=65535)]
"""A TCP port; 0 is any free one."""
Seconds = Annotated[float, Meta(ge=0)]
"""A time that may be zero."""
PositiveSeconds = Annotated[float, Meta(gt=0)]
"""A time that is never zero."""
Share = Annotated[float, Meta(gt=0, le=1)]
"""A part of a whole, and never nothing."""
Text = Annotated[str, Meta(min_length=1)]
"""Text that is not empty."""
Texts = Annotated[str, Meta(min_length=1), Several()]
"""One text or several, with commas between."""
Secrets = Annotated[str, Meta(min_length=1), Several(), Secret()]
"""One secret or several."""
Sha256 = Annotated[str, Meta(pattern="^[0-9a-fA-F]{64}$", description="64 hexadecimal digits")]
"""A SHA-256 digest: 64 hexadecimal digits."""

WorkerCount = Annotated[int, Meta(ge=1, le=64)]
"""Processes that share one port; more than the cores of a large machine is a slip."""

BlockSize = Annotated[int, OneOf((16, 32, 64))]
DType = Literal["auto", "float32", "bfloat16", "float16", "packed"]
GenerationConfig = Literal["auto", "none"]
KvCacheDType = Literal["auto", "float32", "bfloat16", "float16"]
Device = Literal["auto", "cpu", "cuda"]
ReasoningParser = Literal["auto", "none", "qwen3", "deepseek_r1"]
ToolCallParser = Literal["auto", "hermes", "llama3_json", "mistral"]
Pooling = Literal["last", "mean"]
LogFormat = Literal["text", "json"]
LogLevel = Literal["debug", "info", "warning", "error"]
