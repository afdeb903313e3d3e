"""Tools for templates that do not know of them: all in messages, in Hermes' format.

Many models have seen that format; how well one that has not makes use of it is up to the model.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from quire_engine.server.tools.formats import HERMES

Message = dict[str, Any]

_INTRODUCTION = """\
You can call functions. These are described as JSON, one a line:
<tools>
{definitions}
</tools>
To call one, answer with its name and arguments as JSON between tags, once for each call:
<tool_call>
{{"name": <the function's name>, "arguments": {{<an argument's name>: <its value>, ...}}}}
</tool_call>"""


def write_without_tools(
    messages: Sequence[Message], definitions: Sequence[Message]
) -> list[Message]:
    """Return a conversation whose calls, results and definitions are in the texts of messages."""
    written: list[Message] = []
    is_result = False
    for message in messages:
        plain = _write_plain(message)
        if is_result and message["role"] == "tool":  # templates want users and models to alternate
            written[-1]["content"] += "\n" + plain["content"]
        else:
            written.append(plain)
        is_result = message["role"] == "tool"
    return _with_introduction(written, definitions) if definitions else written


def _with_introduction(messages: list[Message], definitions: Sequence[Message]) -> list[Message]:
    """Put the definitions into the first message, if the model does not say that itself."""
    lines = "\n".join(map(_to_json, definitions))
    first, introduction = messages[0], _INTRODUCTION.format(definitions=lines)
    if first["role"] in ("system", "developer"):
        content = f"{_text_of(first)}\n\n{introduction}"
    elif first["role"] == "user":  # for there are templates that take no system message
        content = f"{introduction}\n\n{_text_of(first)}"
    else:
        return [{"role": "system", "content": introduction}, *messages]
    return [{**first, "content": content}, *messages[1:]]


def _write_plain(message: Message) -> Message:
    """A call or a result as text, and any other message as it is."""
    if message["role"] == "tool":
        content = f"<tool_response>\n{_text_of(message)}\n</tool_response>"
        return {"role": "user", "content": content}
    if "tool_calls" not in message:
        return message
    calls = [_write_call(call["function"]) for call in message["tool_calls"]]
    others = {key: value for key, value in message.items() if key != "tool_calls"}
    return {**others, "content": "\n".join(filter(None, (_text_of(message), *calls)))}


def _write_call(function: Mapping[str, str]) -> str:
    name, arguments = _to_json(function["name"]), function["arguments"] or "{}"
    call = f'{{"name": {name}, "arguments": {arguments}}}'
    return f"{HERMES.opener}\n{call}\n{HERMES.closer}"


def _text_of(message: Message) -> str:
    content = message.get("content") or ""
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content)


def _to_json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
