"""How many files, connections among them, a process may have open."""

import logging
import resource

_log = logging.getLogger(__name__)
_OTHER_FILES = 128
"""Files that a server has open beside its connections."""


def raise_open_files(num_connections: int, files_each: int = 1) -> None:
    """Let this process have so many connections open, as far as the system allows.

    Parameters
    ----------
    files_each
        Files that one connection takes, with those that are opened for it.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = files_each * num_connections + _OTHER_FILES
    allowed = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
    if soft != resource.RLIM_INFINITY and soft < allowed:
        resource.setrlimit(resource.RLIMIT_NOFILE, (allowed, hard))
    if allowed < wanted:
        _log.warning(
            "this process may open %d files, which is too few for %d connections; raise the limit"
            " (ulimit -n) or lower --max-connections: %d have room",
            allowed,
            num_connections,
            max(allowed - _OTHER_FILES, 0) // files_each,
        )
