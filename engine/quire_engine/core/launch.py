"""What a core process is told when it starts, and how it ends with its parent.

The parent writes one line of JSON to the core's standard input and keeps the pipe open: its end
of file means that the parent is gone, on any system and however it ended. On Linux the kernel is
asked to kill the core as well, which also covers a core that hangs inside a library.
"""

import os
import signal

import msgspec

from quire_engine.config import EngineConfig


class CoreLaunch(msgspec.Struct, kw_only=True):
    """Everything a core process needs to start."""

    config: EngineConfig
    model_path: str | None
    """Where the model's files are; None with a simulated executor."""
    input_address: str
    """Where the core binds its ROUTER socket."""


def encode_launch(launch: CoreLaunch) -> bytes:
    """Write a launch as the one line that `read_launch` expects."""
    return msgspec.json.encode(launch) + b"\n"


def read_launch(fd: int) -> CoreLaunch:
    """Read the launch from `fd` up to its line's end, and not a byte further."""
    line = bytearray()
    while not line.endswith(b"\n"):
        chunk = os.read(fd, 1 << 16)
        if not chunk:
            raise SystemExit("quire_engine.core is started by the API server, not by hand")
        line += chunk
    return msgspec.json.decode(bytes(line), type=CoreLaunch)


def ignore_terminal_signals() -> None:
    """Leave SIGINT and SIGTERM to the parent, which lets running requests finish first.

    A terminal's Ctrl-C and some supervisors signal the whole process group.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
