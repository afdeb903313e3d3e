"""Conversations: from a checked request to the prompt, and what its answer will look like."""

from collections.abc import Sequence
from dataclasses import dataclass

from quire_engine.protocol.grammar import Grammar
from quire_engine.server.prompts import write_conversation
from quire_engine.server.schemas.chat import ChatRequest
from quire_engine.server.schemas.tools import Tool
from quire_engine.server.service import Service
from quire_engine.server.templates import choose_template, last_text
from quire_engine.server.text_maker import ReasoningChoices
from quire_engine.server.tools.use import ToolUse, choose_use
from quire_engine.tokenizing.reasoning import find_start


@dataclass(frozen=True, slots=True, kw_only=True)
class Conversation:
    """A conversation that is ready to be answered."""

    prompt: str
    use: ToolUse | None
    """How the answer may call tools; None if it is text."""
    grammar: Grammar | None
    """What the answer has to look like."""
    reasoning: ReasoningChoices | None
    """How a reasoning is told from the answer, if it is."""


async def prepare_chat(service: Service, request: ChatRequest) -> Conversation:
    """Write the conversation, and compile what its answer has to look like.

    Raises
    ------
    ApiError, RequestError
        Tools or the form make no sense or are too much, or the template cannot write it.
    """
    use = choose_use(request, service.tool_setup, service.tokenizer)
    wanted = use.grammar(request.grammar_spec()) if use else request.grammar_spec()
    grammar = await service.prepare_grammar(wanted)
    told = request.tools or () if use else ()
    prompt, reasoning = await _write_chat(service, request, told)
    if grammar is not None:  # it has no room for a reasoning
        reasoning = None
    return Conversation(prompt=prompt, use=use, grammar=grammar, reasoning=reasoning)


async def _write_chat(
    service: Service, request: ChatRequest, tools: Sequence[Tool]
) -> tuple[str, ReasoningChoices | None]:
    """Write the conversation; returns it with how a reasoning is told from its answer, if it is.

    Parameters
    ----------
    tools
        Those that the model is told of.

    Raises
    ------
    RequestError
        The template cannot write it, or the request may not have what it asks of the template.
    """
    choices = choose_template(
        request, trusts_templates=service.config.model.trust_request_chat_template
    )
    prompt = await write_conversation(
        service.tokenizer,
        service.renderer,
        request.messages,
        choices,
        service.facts,
        tools=tools,
        tool_setup=service.tool_setup,
    )
    parser = service.reasoning_parser
    if parser is None:
        return prompt, None
    continued = last_text(request.messages) if choices.continues_last else None
    return prompt, ReasoningChoices(find_start(parser, prompt, continued))
