"""Refuses tools and messages of tools that make no sense, and names the place in the body."""

from collections.abc import Mapping, Sequence

from quire_engine.errors import RequestError
from quire_engine.server.schemas.chat import ChatMessage
from quire_engine.server.schemas.tools import AllowedToolsChoice, NamedTool, Tool, ToolChoice
from quire_engine.server.tools.schema_check import check_parameters


def check_tools(messages: Sequence[ChatMessage], tools: Sequence[Tool]) -> None:
    """Refuse what makes no sense in messages and definitions.

    Raises
    ------
    RequestError
        Names come twice, parameters are no schema, or a result belongs to no call.
    """
    _check_definitions(tools)
    _check_messages(messages)


def _check_definitions(tools: Sequence[Tool]) -> None:
    places: dict[str, int] = {}
    for index, tool in enumerate(tools):
        name, place = tool.function.name, f"tools[{index}].function"
        if name in places:
            raise RequestError(
                f"{place}.name: {name!r} is the name of tools[{places[name]}] already",
                parameter=f"{place}.name",
            )
        places[name] = index
        if tool.function.parameters is not None:
            check_parameters(tool.function.parameters, f"{place}.parameters")


def check_choice(choice: ToolChoice | None, tools: Sequence[Tool]) -> None:
    """Refuse a choice of tools that are not there.

    Raises
    ------
    RequestError
        It needs tools and there are none, or it names another.
    """
    if choice in (None, "none", "auto"):
        return
    if not tools:
        raise RequestError(
            "tool_choice: only allowed together with tools; send both or neither",
            parameter="tool_choice",
        )
    names = {tool.function.name for tool in tools}
    unknown = [name for name in chosen_names(choice) if name not in names]
    if unknown:
        raise RequestError(
            f"tool_choice: {unknown[0]!r} is none of the tools, which are"
            f" {', '.join(sorted(names)[:20])}",
            parameter="tool_choice",
        )


def chosen_names(choice: ToolChoice | None) -> tuple[str, ...]:
    """The functions that a choice names; none if it names none."""
    if isinstance(choice, NamedTool):
        return (choice.function.name,)
    if isinstance(choice, AllowedToolsChoice):
        return tuple(tool.function.name for tool in choice.allowed_tools.tools)
    return ()


def _check_messages(messages: Sequence[ChatMessage]) -> None:
    calls: Mapping[str, str] = {}
    for index, message in enumerate(messages):
        place = f"messages[{index}]"
        if message.tool_calls:
            calls = _check_calls(message, f"{place}.tool_calls")
        if message.role == "tool":
            _check_result(message, place, calls)


def _check_calls(message: ChatMessage, place: str) -> Mapping[str, str]:
    """Names of the functions that a message calls, by the calls' ids."""
    if message.role != "assistant":
        raise RequestError(f"{place}: only the assistant calls tools", parameter=place)
    calls = {call.id: call.function.name for call in message.tool_calls or ()}
    if len(calls) < len(message.tool_calls or ()):
        raise RequestError(f"{place}: two calls have the same id", parameter=place)
    return calls


def _check_result(message: ChatMessage, place: str, calls: Mapping[str, str]) -> None:
    call_id = message.tool_call_id
    if call_id is None:
        raise RequestError(
            f"{place}.tool_call_id: required for the role tool; it says which call this answers",
            parameter=f"{place}.tool_call_id",
        )
    if call_id not in calls:
        raise RequestError(
            f"{place}.tool_call_id: {call_id[:64]!r} is none of the calls of the assistant's"
            " message before it",
            parameter=f"{place}.tool_call_id",
        )
    if message.name not in (None, calls[call_id]):
        raise RequestError(
            f"{place}.name: the call {call_id[:64]!r} is of {calls[call_id]!r}; leave the name out"
            " or set it to that",
            parameter=f"{place}.name",
        )
