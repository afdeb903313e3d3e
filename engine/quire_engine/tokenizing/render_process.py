"""The process that runs a chat template: bounded in time and memory, and of no use to break.

    parent ──► one RenderSetup, then RenderTask after RenderTask     (length, then msgpack)
    parent ◄── one Rendered for each task

Templates are code that comes with a model, and what they do depends on what clients send: a loop
in a loop runs for minutes within every limit of Jinja's sandbox, and "a" * 10 ** 10 is one
expression. Here the CPU time of a task is bounded by a signal, its memory by the system, and its
text by counting; who hangs beyond that is killed by the parent.
"""

import resource
import signal
from typing import Any, Never

import msgspec

from quire_engine.core.launch import ignore_terminal_signals
from quire_engine.errors import ModelError, RequestError
from quire_engine.parent import die_with_parent
from quire_engine.tokenizing.chat_template import ChatTemplate
from quire_engine.tokenizing.frames import read_frame, write_frame

CPU_SECONDS = 2.0
"""A conversation takes milliseconds; the largest that a model takes, some tenths of a second."""
MAX_MEMORY_BYTES = 1 << 30


class RenderSetup(msgspec.Struct, kw_only=True):
    """The template that all tasks use."""

    source: str
    variables: dict[str, str]
    max_characters: int
    """Longer texts are refused: no model takes them."""


class RenderTask(msgspec.Struct, kw_only=True):
    """Arguments of `ChatTemplate.render`."""

    messages: list[dict[str, Any]]
    add_generation_prompt: bool = True
    continues_last: bool = False
    tools: list[dict[str, Any]] | None = None
    variables: dict[str, Any] = {}
    template: str | None = None
    """Another template than the model's, in Jinja."""


class Rendered(msgspec.Struct, kw_only=True):
    """A text, or why there is none."""

    text: str = ""
    error: str | None = None
    parameter: str | None = "messages"
    """Which one is at fault."""


class _TimeUpError(Exception):
    """A template ran too long."""


def render(template: ChatTemplate, task: RenderTask, max_characters: int) -> Rendered:
    """Run one task within its limits."""
    try:
        signal.setitimer(signal.ITIMER_PROF, CPU_SECONDS)
        try:
            if task.template is not None:
                template = ChatTemplate(task.template, template.variables)
            text = template.render(
                task.messages,
                add_generation_prompt=task.add_generation_prompt,
                continues_last=task.continues_last,
                tools=task.tools,
                variables=task.variables,
                max_characters=max_characters,
            )
        finally:
            signal.setitimer(signal.ITIMER_PROF, 0.0)
    except RequestError as error:
        return Rendered(error=str(error), parameter=error.parameter)
    except ModelError as error:
        return Rendered(error=f"chat_template: {error}", parameter="chat_template")
    except _TimeUpError:
        return Rendered(error="the model's chat template takes too long on these messages")
    except MemoryError:
        return Rendered(error="the model's chat template needs too much memory for these messages")
    except Exception as error:  # noqa: BLE001 - a template can raise what Python can
        kind = type(error).__name__
        return Rendered(error=f"the model's chat template fails on these messages: {kind}")
    return Rendered(text=text)


def _on_time_up(_number: int, _frame: object) -> Never:
    raise _TimeUpError


def main() -> None:
    """Render until the parent closes the pipe."""
    die_with_parent()
    ignore_terminal_signals()
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY_BYTES, MAX_MEMORY_BYTES))
    signal.signal(signal.SIGPROF, _on_time_up)
    setup = msgspec.msgpack.decode(read_frame(), type=RenderSetup)
    template = ChatTemplate(setup.source, setup.variables)
    decoder = msgspec.msgpack.Decoder(RenderTask)
    while True:
        write_frame(render(template, decoder.decode(read_frame()), setup.max_characters))


if __name__ == "__main__":
    main()
