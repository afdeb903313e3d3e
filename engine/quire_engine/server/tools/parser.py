r"""Finds calls in an answer's text while it comes; the rest is content, to the letter.

    text      I'll look.\n<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>
    events    Content("I'll look.")    CallBegin("f")    CallArguments('{"x": 1}')

A call is one from the moment that its name is known and its arguments have begun: then it is shown,
and its arguments as they come. What until then turns out to be none stays content: JSON that is
broken, a function that nobody defined, a text that ends too early. White space around calls is no
content. The events of a text, joined, do not depend on how it was cut into pieces.
"""

import re
from collections.abc import Set as AbstractSet

from quire_engine.server.tools.events import CallArguments, CallBegin, Content, ToolEvent
from quire_engine.server.tools.formats import ARGS, CALL_ID, ToolFormat
from quire_engine.server.tools.json_text import read_nested, read_text, read_value
from quire_engine.server.tools.text_source import Reading, TextSource

_NAME = re.compile(r"[A-Za-z0-9_.-]*")
_BETWEEN = re.compile(r"[\s;,]*")
_ARGUMENTS = ("arguments", "parameters")
"""Either key is taken, for models mix them up."""


class ToolParser:
    """Reads one answer.

    Parameters
    ----------
    names
        Functions that may be called.
    is_single
        Whether the first call is the last: what the model says after it is dropped.
    silent_openers
        Whether the opener is a control token, which is no content either.
    """

    def __init__(
        self,
        tool_format: ToolFormat,
        names: AbstractSet[str],
        *,
        is_single: bool = False,
        silent_openers: bool = False,
    ) -> None:
        self._format = tool_format
        self._names = names
        self._is_single = is_single
        self._silent_openers = silent_openers
        self._source = TextSource()
        self._events: list[ToolEvent] = []
        self._arguments: list[str] = []
        """Of the last call, pieces that come after the events."""
        self._space = ""
        """White space at the end of the content, which may be that before a call."""
        self._has_content = False
        self._is_after_call = False
        self.num_calls = 0
        self.is_open = False
        """Whether the last call's arguments have not come to their end."""
        self._reading = self._read_answer()

    def push(self, text: str) -> list[ToolEvent]:
        """Take the next piece of text; what it makes sure."""
        self._source.add(text)
        next(self._reading, None)
        return self._take_events()

    def finish(self) -> list[ToolEvent]:
        """Take the text's end; what was held back."""
        self._source.is_over = True
        next(self._reading, None)
        if not self.num_calls:
            self._show_content("", is_last=True)
        return self._take_events()

    def _take_events(self) -> list[ToolEvent]:
        self._flush_arguments()
        events, self._events = self._events, []
        return events

    def _flush_arguments(self) -> None:
        if self._arguments:
            self._events.append(CallArguments("".join(self._arguments)))
            self._arguments = []

    def _read_answer(self) -> Reading[None]:
        yield from self._read_bare()
        while (yield from self._read_content()):
            yield from self._read_marked()
            if self._is_single and self.num_calls:
                break
        while (yield from self._source.has_more()):
            self._source.at = len(self._source.text)
            self._source.commit()

    def _read_bare(self) -> Reading[None]:
        """Read calls that the answer begins with, where it needs no opener for them."""
        if not self._format.starts_bare:
            return
        if (yield from self._source.peek_past_space()) == "{":
            yield from self._read_calls()
        if not self.num_calls:
            self._take_back("")

    def _read_content(self) -> Reading[bool]:
        """Read up to the next opener; whether there is one."""
        source, opener = self._source, self._format.opener
        if self._is_single and self.num_calls:
            return False
        while True:
            place = source.text.find(opener, source.at)
            end = place if place >= 0 else len(source.text) - self._num_begun(opener)
            text, source.at = source.text[source.at : end], end
            source.commit()
            self._show_content(text)
            if place >= 0:
                return True
            if source.is_over:
                return False
            yield

    def _num_begun(self, opener: str) -> int:
        """How many characters at the end of the unread text may begin an opener."""
        source = self._source
        if source.is_over:
            return 0
        most = min(len(opener) - 1, len(source.text) - source.at)
        sizes = range(most, 0, -1)
        return next((size for size in sizes if source.text.endswith(opener[:size])), 0)

    def _read_marked(self) -> Reading[None]:
        """Read calls after an opener, which comes next; what is none is left to be content."""
        source, before = self._source, self.num_calls
        source.at = len(self._format.opener)
        first = yield from source.peek_past_space()
        if self._format.names_first and first not in "{[":
            yield from self._read_named()
        else:
            yield from self._read_calls()
        if self.num_calls == before:
            self._take_back(self._format.opener if self._silent_openers else "")

    def _take_back(self, silent: str) -> None:
        """Let what was read since the last call be content, but for a silent beginning.

        What comes after it is read next, and nothing a second time: the work is the text's length.
        """
        text = self._source.text[: self._source.at]
        self._source.commit()
        self._show_content(text.removeprefix(silent))

    def _read_calls(self) -> Reading[None]:
        """Read one object or several, as a list or one after the other."""
        source, before = self._source, self.num_calls
        is_list = yield from source.skip("[")
        following = yield from source.peek_past_space()
        while following == "{":
            if not (yield from self._read_call()):
                if self.num_calls > before:
                    self._take_back("")
                return
            source.commit()
            if self._is_single:
                return
            following = yield from source.peek_past(_BETWEEN)
        if self.num_calls > before:
            if is_list and following == "]":
                source.at += 1
                source.commit()
            source.at = 0
            yield from self._read_closer()

    def _read_closer(self) -> Reading[None]:
        """Read what closes calls, if it comes; what follows a call is not read else."""
        source = self._source
        yield from source.peek_past_space()
        if self._format.closer and (yield from source.skip(self._format.closer)):
            source.commit()
        source.at = 0

    def _read_call(self) -> Reading[bool]:
        """Read an object, which comes next, to where it can be no call; whether it is one."""
        call = _Call()
        yield from self._read_members(call)
        if call.is_whole and call.name in self._names and not call.is_shown:
            self._show_call(call)
        return call.is_shown

    def _read_members(self, call: "_Call") -> Reading[None]:
        source = self._source
        mark = "{"
        while mark in ("{", ","):
            source.at += 1
            following = yield from source.peek_past_space()
            if following == "}" and mark == "{":
                break
            if following != '"' or not (yield from self._read_member(call)):
                return
            mark = yield from source.peek_past_space()
        if (yield from source.skip("}")):
            call.is_whole = True

    def _read_member(self, call: "_Call") -> Reading[bool]:
        """Read a key and its value; whether there is still hope for a call."""
        source = self._source
        key = yield from read_text(source)
        if key is None or (yield from source.peek_past_space()) != ":":
            return False
        source.at += 1
        following = yield from source.peek_past_space()
        if key == "name" and not call.is_shown:
            call.name = (yield from read_text(source)) if following == '"' else None
            if call.name not in self._names:
                return False
            if call.arguments:
                self._show_call(call)
            return True
        if key in _ARGUMENTS and not call.is_shown:
            return (yield from self._read_arguments(call, following))
        return bool((yield from read_value(source)))

    def _read_arguments(self, call: "_Call", following: str) -> Reading[bool]:
        """Read the arguments: an object, an object written as a string, or null."""
        source = self._source
        if following == "{" and call.name is not None:
            self._show_call(call)
            return (yield from self._show_object())
        if following == '"':
            call.arguments = (yield from read_text(source)) or "broken"
        else:
            call.arguments = yield from read_value(source)
        call.arguments = "{}" if call.arguments == "null" else call.arguments.strip()
        if not call.arguments.startswith("{"):
            return False
        if call.name is not None:
            self._show_call(call)
        return True

    def _read_named(self) -> Reading[None]:
        """Read a bare name and then arguments."""
        source, begin = self._source, self._source.at
        yield from source.peek_past(_NAME)
        call = _Call(source.text[begin : source.at])
        if call.name not in self._names:
            return
        if (yield from source.skip(CALL_ID)):
            yield from source.peek_past(_NAME)
        yield from source.skip(ARGS)
        if (yield from source.peek_past_space()) == "{":
            self._show_call(call)
            yield from self._show_object()
            source.commit()

    def _show_object(self) -> Reading[bool]:
        self.is_open = True
        stop = self._format.closer
        is_whole = yield from read_nested(self._source, self._show_arguments, stop=stop)
        self.is_open = not is_whole
        return is_whole

    def _show_call(self, call: "_Call") -> None:
        call.is_shown = True
        self.num_calls += 1
        if not self._has_content:
            self._space = ""
        self._is_after_call = True
        self._flush_arguments()
        self._events.append(CallBegin(call.name or ""))
        if call.arguments or call.is_whole:
            self._arguments.append(call.arguments or "{}")

    def _show_arguments(self, text: str) -> None:
        self._arguments.append(text)
        if self._source.at == len(self._source.text):  # else all of the rest would be copied
            self._source.commit()

    def _show_content(self, text: str, *, is_last: bool = False) -> None:
        """Show text but the white space at its end, which waits for what comes."""
        if self._is_after_call:
            text = text.lstrip()
            self._is_after_call = not text
        text = self._space + text
        shown = text if is_last else text.rstrip()
        self._space = text[len(shown) :]
        if shown:
            self._has_content = True
            self._flush_arguments()
            self._events.append(Content(shown))


class _Call:
    """What is known of a call."""

    def __init__(self, name: str | None = None) -> None:
        self.name = name
        self.arguments = ""
        """If they came before the name, or as a string."""
        self.is_whole = False
        self.is_shown = False
