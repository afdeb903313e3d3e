"""Conversations: from a checked request to the prompt, and where its answer begins."""

from collections.abc import Sequence

from quire_engine.server.prompts import write_conversation
from quire_engine.server.schemas.chat import ChatRequest
from quire_engine.server.schemas.tools import Tool
from quire_engine.server.service import Service
from quire_engine.server.templates import choose_template, last_text
from quire_engine.server.text_maker import ReasoningChoices
from quire_engine.tokenizing.reasoning import find_start


async def write_chat(
    service: Service, request: ChatRequest, tools: Sequence[Tool] = ()
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
