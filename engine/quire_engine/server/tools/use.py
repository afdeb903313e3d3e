"""What one request wants of tools: which may be called, how often, and whether one must be."""

from collections.abc import Iterable
from dataclasses import dataclass

from quire_engine.errors import RequestError
from quire_engine.protocol.grammar import (
    CallOrJsonGrammar,
    GrammarSpec,
    GrammarTag,
    JsonObjectGrammar,
    JsonSchemaGrammar,
    TaggedGrammar,
)
from quire_engine.server.schemas.chat import ChatRequest
from quire_engine.server.schemas.tools import AllowedToolsChoice, NamedTool, Tool
from quire_engine.server.tools.checks import check_choice, check_tools, chosen_names
from quire_engine.server.tools.formats import ToolFormat
from quire_engine.server.tools.parser import ToolParser
from quire_engine.server.tools.setup import ToolSetup
from quire_engine.tokenizing.tokenizer import Tokenizer

_NO_ARGUMENTS = {"type": "object", "properties": {}, "additionalProperties": False}


@dataclass(frozen=True, slots=True, kw_only=True)
class ToolUse:
    """Tools of one request whose answers may call them."""

    tool_format: ToolFormat
    tools: tuple[Tool, ...]
    """Those that may be called."""
    is_single: bool
    """Whether there is one call at most."""
    is_forced: bool
    """Whether there is one call at least, and nothing else."""
    control_tokens: dict[int, str]
    """Markers of calls that are control tokens, by their ids."""

    def make_parser(self) -> ToolParser:
        """Make the parser of one answer."""
        return ToolParser(
            self.tool_format,
            frozenset(tool.function.name for tool in self.tools),
            is_single=self.is_single,
            silent_openers=self.tool_format.opener in self.control_tokens.values(),
        )

    def grammar(self, of_content: GrammarSpec | None) -> GrammarSpec | None:
        """What the answer has to look like; None where it may be anything.

        Parameters
        ----------
        of_content
            The same for an answer that calls no tools.

        Raises
        ------
        RequestError
            That cannot be told from calls.
        """
        if self.is_forced:
            return _write_grammar(self)
        if of_content is None or isinstance(of_content, JsonObjectGrammar | JsonSchemaGrammar):
            return of_content and CallOrJsonGrammar(_write_grammar(self), of_content)
        raise RequestError(
            "structured_outputs: not together with tools that may be called, unless it is JSON;"
            ' send "tool_choice": "none"',
            parameter="structured_outputs",
        )


def choose_use(request: ChatRequest, setup: ToolSetup, tokenizer: Tokenizer) -> ToolUse | None:
    """Return how the request uses tools; None if its answers are text.

    Raises
    ------
    RequestError
        Tools, their choice or messages of tools make no sense, or nobody knows how this model
        writes calls.
    """
    choice, tool_format = request.tool_choice, setup.tool_format
    check_tools(request.messages, request.tools or ())
    check_choice(choice, request.tools or ())
    if not request.tools or choice == "none":
        return None
    if tool_format is None:
        raise RequestError(
            "tools: the model's chat template does not show how it writes calls, so they would not"
            ' be found; send "tool_choice": "none", or let the server be started with'
            " --tool-call-parser",
            parameter="tools",
        )
    names = chosen_names(choice)
    must_call = choice == "required" or isinstance(choice, NamedTool)
    if isinstance(choice, AllowedToolsChoice):
        must_call = choice.allowed_tools.mode == "required"
    if must_call:
        _check_tokens(request)
    return ToolUse(
        tool_format=tool_format,
        tools=tuple(tool for tool in request.tools if not names or tool.function.name in names),
        is_single=request.parallel_tool_calls is False or isinstance(choice, NamedTool),
        is_forced=must_call,
        control_tokens=dict(_control_tokens(tool_format.markers, tokenizer)),
    )


def _check_tokens(request: ChatRequest) -> None:
    """Refuse what does not go with a grammar."""
    for name in ("allowed_token_ids", "bad_words", "use_beam_search"):
        if getattr(request, name, None):
            raise RequestError(
                f"{name}: not together with a tool_choice that asks for a call", parameter=name
            )


def _control_tokens(markers: Iterable[str], tokenizer: Tokenizer) -> Iterable[tuple[int, str]]:
    for marker in markers:
        token_id = tokenizer.token_id(marker)
        if token_id is not None and token_id in tokenizer.special_token_ids:
            yield token_id, marker


def _write_grammar(use: ToolUse) -> TaggedGrammar:
    """Return the grammar of an answer that is calls and nothing else."""
    return TaggedGrammar(
        tags=tuple(
            GrammarTag(
                begin=use.tool_format.begin.replace("%", tool.function.name),
                schema=_NO_ARGUMENTS
                if tool.function.parameters is None
                else tool.function.parameters,
                end=use.tool_format.end,
            )
            for tool in use.tools
        ),
        separator=use.tool_format.separator,
        is_single=use.is_single,
        parameter="tools",
    )
