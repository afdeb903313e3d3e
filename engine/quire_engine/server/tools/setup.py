"""How one model is told of tools, and how it calls them: known once it is loaded."""

from dataclasses import dataclass

from quire_engine.server.tools.formats import ToolFormat, choose_format
from quire_engine.tokenizing.tokenizer import Tokenizer
from quire_engine.tokenizing.tool_template import reads_tools

_ONE_CALL = "single tool-calls at once"
"""What the templates of Llama 3 say to a message with two calls."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolSetup:
    """What the model's files and the configuration say of tools."""

    tool_format: ToolFormat | None = None
    """None where nobody knows how the model writes calls."""
    template: str | None = None
    """The template for conversations with tools, where that is another."""
    reads_tools: bool = False
    """Whether the template knows of tools; else messages tell the model of them."""
    splits_calls: bool = False
    """Whether the template takes one call in a message."""

    @property
    def has_short_ids(self) -> bool:
        """Whether calls have ids of 9 letters and digits."""
        return self.tool_format is not None and self.tool_format.has_short_ids


def choose_setup(setting: str, tokenizer: Tokenizer) -> ToolSetup:
    """Return a model's setup.

    Parameters
    ----------
    setting
        The format of calls as configured, or "auto".
    """
    template = tokenizer.tool_template or tokenizer.chat_template
    source = None if template is None else template.source
    return ToolSetup(
        tool_format=choose_format(setting, source),
        template=None if tokenizer.tool_template is None else source,
        reads_tools=source is not None and reads_tools(source),
        splits_calls=source is not None and _ONE_CALL in source,
    )
