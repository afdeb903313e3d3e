"""`python -m quire_local.up.tether FD MODULE ARGS...`: runs a module that ends with its parent.

The parent keeps the other end of a pipe open and never writes: its end of file means that the
parent is gone, however it ended. On Linux the kernel is asked to kill as well, which also covers a
process that hangs. A process that is told in neither way has a parent that is alive.
"""

import os
import runpy
import signal
import sys
from threading import Thread

from quire_engine.parent import die_with_parent


def main() -> None:
    """Tie this process to its parent, then become the module."""
    fd = int(sys.argv[1])
    module = sys.argv[2]
    os.set_inheritable(fd, False)
    die_with_parent()
    Thread(target=_end_with, args=(fd,), name="tether", daemon=True).start()
    sys.argv = sys.argv[2:]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _end_with(fd: int) -> None:
    os.read(fd, 1)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    main()
