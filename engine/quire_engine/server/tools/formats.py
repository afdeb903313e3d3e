r"""How models write calls of tools: three formats that most open models were trained on.

hermes        <tool_call>\n{"name": "f", "arguments": {...}}\n</tool_call>, once for each call
llama3_json   {"name": "f", "parameters": {...}}, joined by "; ", perhaps after <|python_tag|>
mistral       [TOOL_CALLS][{"name": "f", "arguments": {...}}, ...], or for each call
              [TOOL_CALLS]f[ARGS]{...}

Qwen2.5, Qwen3 and SmolLM2 write Hermes' format, as do models that were never taught another.
"""

from dataclasses import dataclass, replace

from quire_engine.tokenizing.tool_template import reads_tools

CALL_ID, ARGS = "[CALL_ID]", "[ARGS]"
"""What newer Mistral models write between a call's name, its id and its arguments."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolFormat:
    """How calls look in a model's text."""

    name: str
    opener: str
    """Calls begin after it, anywhere in the text."""
    closer: str = ""
    """Ends what an opener began; empty where nothing does."""
    starts_bare: bool = False
    """Whether a text that begins with an object is a call without the opener."""
    names_first: bool = False
    """Whether a call may also be a bare name, then its arguments."""
    has_short_ids: bool = False
    """Whether templates take ids of 9 letters and digits only."""
    begin: str
    """How a model that has to call writes a call up to its arguments; % stands for the name."""
    end: str
    separator: str
    """What such a model writes between two calls."""

    @property
    def markers(self) -> tuple[str, ...]:
        """Texts that may be control tokens, which are left out of other answers."""
        names = (CALL_ID, ARGS) if self.names_first else ()
        return tuple(filter(None, (self.opener, self.closer, *names)))


HERMES = ToolFormat(
    name="hermes",
    opener="<tool_call>",
    closer="</tool_call>",
    begin='<tool_call>\n{"name": "%", "arguments": ',
    end="}\n</tool_call>",
    separator="\n",
)
LLAMA3_JSON = ToolFormat(
    name="llama3_json",
    opener="<|python_tag|>",
    starts_bare=True,
    begin='{"name": "%", "parameters": ',
    end="}",
    separator="; ",
)
MISTRAL = ToolFormat(
    name="mistral",
    opener="[TOOL_CALLS]",
    names_first=True,
    has_short_ids=True,
    begin='[TOOL_CALLS][{"name": "%", "arguments": ',
    end="}]",
    separator="",
)
FORMATS = {one.name: one for one in (HERMES, LLAMA3_JSON, MISTRAL)}

_OTHER_CALLS = ("<function=", "<arg_key>", "<｜tool")
"""Marks of formats that share a marker with Hermes': Qwen3-Coder's, GLM's and DeepSeek's."""


def choose_format(setting: str, template: str | None) -> ToolFormat | None:
    """Choose by the setting, and of "auto" by what the model's template shows to the model.

    A template that does not know of tools gets Hermes' format, with the definitions in a message.

    Parameters
    ----------
    template
        The source of the one for conversations with tools; None where the model has none.

    Returns
    -------
    ToolFormat or None
        None where the format is none of these.
    """
    found = _find_format(template) if setting == "auto" else FORMATS[setting]
    if found is MISTRAL and template is not None and ARGS in template:
        return replace(MISTRAL, begin="[TOOL_CALLS]%[ARGS]", end="")
    return found


def _find_format(template: str | None) -> ToolFormat | None:
    if template is None:
        return None
    if not reads_tools(template):
        return HERMES
    if MISTRAL.opener in template:
        return MISTRAL
    if HERMES.opener in template:
        has_others = any(mark in template for mark in _OTHER_CALLS)
        return None if has_others else HERMES
    is_llama = LLAMA3_JSON.opener in template or '"parameters": dictionary' in template
    return LLAMA3_JSON if is_llama else None
