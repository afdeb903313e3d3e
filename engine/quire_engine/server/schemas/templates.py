"""Parameters that reach a chat template."""

from typing import Annotated, Any, Literal

from msgspec import Meta

TemplateKwargs = Annotated[dict[str, Any], Meta(max_length=64)]
Template = Annotated[str, Meta(min_length=1, max_length=1 << 18)]
Documents = Annotated[list[dict[str, str]], Meta(max_length=1024)]
ReasoningEffort = Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"]
