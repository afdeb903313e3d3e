"""The end of a process whose tasks do not let themselves be cancelled."""

import os
import threading


def end_within(seconds: float) -> None:
    """End this process with status 1 after so long, if it has not ended by then.

    By an exit and not by a signal: one that process 1 of a container sends itself is ignored, and
    so kopf's own last resort, which is SIGKILL, never ends an operator there.
    """
    timer = threading.Timer(seconds, os._exit, (1,))
    timer.daemon = True
    timer.start()
