"""The process that started this one: on Linux the kernel ends this one with it.

That covers what nothing in this process can: that it hangs inside a library, or is stopped.
"""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def die_with_parent(parent: int | None = None) -> None:
    """Have the kernel kill this process when its parent dies, where the kernel can.

    The kernel counts the thread that started this process as its parent: it has to be one that
    lives as long as the other process does, as its main thread.

    Parameters
    ----------
    parent
        Its process id. If it is not the parent any more, it died before this call, and this
        process ends now. None: whoever it is, its death is noticed in another way, too.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if parent is not None and os.getppid() != parent:
        raise SystemExit(f"process {parent} started this one, and has ended")
