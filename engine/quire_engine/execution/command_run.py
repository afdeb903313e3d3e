"""One command for one request: started, read while it writes, and never left behind."""

import asyncio
import logging
import os
import signal
from asyncio.subprocess import DEVNULL, PIPE, Process
from collections.abc import Callable, Mapping, Sequence

_log = logging.getLogger(__name__)

_PIECE_BYTES = 1 << 16
_MAX_ANSWER_BYTES = 16 << 20
"""A command that writes more than this is ended: nobody asked for so much."""
_KEPT_MESSAGE_BYTES = 2048
"""So much of what it says on standard error is kept, for the log."""


class CommandError(Exception):
    """The command did not answer; the text is for whoever sent the request."""


async def run_command(
    words: Sequence[str], variables: Mapping[str, str], on_output: Callable[[bytes], None]
) -> None:
    """Run a command to its end; its standard output is handed over as it comes.

    Cancelling ends the command and all that it has started.

    Parameters
    ----------
    words
        Program and arguments; no shell reads them.
    variables
        Added to this process's environment.

    Raises
    ------
    CommandError
        It cannot be started, ends with another status than 0, or writes without end.
    """
    process = await _start(words, variables)
    messages = asyncio.create_task(_read_messages(process))
    try:
        await _read_output(process, on_output)
        status = await process.wait()
        if status != 0:
            _log.warning("a command ended with %d; --log-level debug logs what it said", status)
            _log.debug("it said: %s", (await messages).strip() or "-")
            raise CommandError(f"The command for this request failed ({_describe(status)}).")
    finally:
        _kill_group(process)
        messages.cancel()
        _close_pipes(process)
        await process.wait()


async def _start(words: Sequence[str], variables: Mapping[str, str]) -> Process:
    try:
        return await asyncio.create_subprocess_exec(
            *words,
            stdin=DEVNULL,
            stdout=PIPE,
            stderr=PIPE,
            env={**os.environ, **variables},
            start_new_session=True,  # a group of its own, so that all of it can be ended
        )
    except ValueError as error:
        raise CommandError(
            "The prompt holds a NUL character, which a command's environment cannot."
        ) from error
    except OSError as error:
        _log.warning("the command %s cannot be started: %s", words[0], error.strerror)
        raise CommandError("The command for this request cannot be started.") from error


async def _read_output(process: Process, on_output: Callable[[bytes], None]) -> None:
    if process.stdout is None:
        raise RuntimeError("bug: the command's output is not read")
    num_bytes = 0
    while piece := await process.stdout.read(_PIECE_BYTES):
        num_bytes += len(piece)
        if num_bytes > _MAX_ANSWER_BYTES:
            raise CommandError("The command for this request wrote more than an answer.")
        on_output(piece)


async def _read_messages(process: Process) -> str:
    """Read all of standard error, so that the command never waits for it; keep the end."""
    if process.stderr is None:
        raise RuntimeError("bug: the command's messages are not read")
    kept = b""
    while piece := await process.stderr.read(_PIECE_BYTES):
        kept = (kept + piece)[-_KEPT_MESSAGE_BYTES:]
    return kept.decode("utf-8", "replace")


def _kill_group(process: Process) -> None:
    """End the command and what it started; those that have ended already are no error."""
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        return


def _close_pipes(process: Process) -> None:
    """Let `wait` return: it waits until both pipes have ended, too.

    One that is full and that nobody reads any more never does, nor one that something holds which
    left the command's group. asyncio has no other name for this.
    """
    process._transport.close()  # type: ignore[attr-defined]


def _describe(status: int) -> str:
    return f"signal {-status}" if status < 0 else f"exit status {status}"
