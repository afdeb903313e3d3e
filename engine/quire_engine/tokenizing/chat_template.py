"""Turns a conversation into the text that a model was trained on, by the model's own template.

Templates come with the model and are code: they run in Jinja's sandbox, without access to Python's
objects. The environment has what Hugging Face's has, so that published templates render alike:
https://huggingface.co/docs/transformers/chat_templating_writing
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any, Never

import jinja2
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment

from quire_engine.errors import ModelError, RequestError
from quire_engine.tokenizing.call_arguments import read_arguments
from quire_engine.tokenizing.continuation import cut_at_mark, mark_end

ChatMessage = Mapping[str, Any]
"""One message: `role`, `content` (text, a list of text parts, or None), and more as tools need."""


class ChatTemplate:
    """A model's compiled chat template.

    Parameters
    ----------
    source
        The template's Jinja text.
    variables
        Names the template may use, such as `bos_token` and `eos_token`.

    Raises
    ------
    ModelError
        The template is not valid Jinja.
    """

    def __init__(self, source: str, variables: Mapping[str, str] | None = None) -> None:
        self.source = source
        self.variables = dict(variables or {})
        try:
            self._template = _environment().from_string(source)
        except jinja2.TemplateSyntaxError as error:
            raise ModelError(
                f"the model's chat template is not valid: line {error.lineno}: {error.message}"
            ) from error

    def render(
        self,
        messages: Sequence[ChatMessage],
        *,
        add_generation_prompt: bool = True,
        continues_last: bool = False,
        tools: Sequence[Mapping[str, Any]] | None = None,
        variables: Mapping[str, object] | None = None,
        max_characters: int | None = None,
    ) -> str:
        """Write a conversation as text, special tokens included.

        The text is to be encoded with `add_special_tokens=False`: a template writes its own BOS.
        What a client sent is rendered in a process of its own; see `render_process`.

        Parameters
        ----------
        continues_last
            End with the last message's content, for the model to go on with it.
        variables
            What else the template may read.

        Raises
        ------
        RequestError
            The template refuses these messages, they don't have what it reads, or it makes more
            than `max_characters` of them.
        """
        plain = [_with_text(message) for message in messages]
        if continues_last:
            plain = mark_end(plain)
        given = {"messages": plain, "tools": tools, "add_generation_prompt": add_generation_prompt}
        try:
            pieces = self._template.generate({**self.variables, **(variables or {}), **given})
            text = _join(pieces, max_characters)
            return cut_at_mark(text) if continues_last else text
        except (jinja2.TemplateError, TypeError, KeyError, ValueError) as error:
            raise RequestError(
                f"the model's chat template refuses these messages: {error}", parameter="messages"
            ) from error


def _join(pieces: Iterator[str], max_characters: int | None) -> str:
    """Join a text while it grows, so that one without end is noticed in time."""
    text, num_characters = [], 0
    for piece in pieces:
        text.append(piece)
        num_characters += len(piece)
        if max_characters is not None and num_characters > max_characters:
            raise RequestError(
                f"messages: the model's chat template makes more than {max_characters} characters"
                " of these messages; the model takes no such prompt",
                parameter="messages",
            )
    return "".join(text)


def _with_text(message: ChatMessage) -> dict[str, Any]:
    """Return the message with its content as one string, which every template takes."""
    content = message.get("content")
    if content is None:
        text = ""
    elif isinstance(content, str):
        text = content
    else:
        text = "\n".join(map(_part_text, content))
    plain = {**message, "content": text}
    if message.get("tool_calls"):
        plain["tool_calls"] = [_with_arguments(call) for call in message["tool_calls"]]
    return plain


def _with_arguments(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    return {**call, "function": {**function, "arguments": read_arguments(function["arguments"])}}


def _part_text(part: Mapping[str, Any]) -> str:
    text = part.get("text")
    if part.get("type", "text") != "text" or not isinstance(text, str):
        raise RequestError(
            f"content parts of type {part.get('type')!r} are not supported; send text parts",
            parameter="messages",
        )
    return text


def _environment() -> ImmutableSandboxedEnvironment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True,
        lstrip_blocks=True,
        extensions=["jinja2.ext.loopcontrols"],
        # both keep Jinja from computing constants while it compiles, which is in this process and
        # without bounds: ("x" * 10 ** 10) | length is one
        optimized=False,
        finalize=_as_it_is,
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = _strftime_now
    return environment


@jinja2.pass_context
def _as_it_is(_context: Context, value: object) -> object:
    """Let a value be shown; that it wants the context makes it impossible before rendering."""
    return value


def _to_json(
    value: object,
    ensure_ascii: bool = False,
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,
) -> str:
    """Write plain JSON; Jinja's own filter escapes HTML characters, which models never saw."""
    return json.dumps(
        value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys
    )


def _raise_exception(message: str) -> Never:
    raise jinja2.TemplateError(message)


def _strftime_now(format: str) -> str:  # noqa: A002 - the name that templates may use
    return datetime.now().astimezone().strftime(format)
