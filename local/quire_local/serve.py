"""`quire serve MODEL`: the engine and its server in the foreground."""

from collections.abc import Sequence

from quire_engine.__main__ import main as serve_engine


def main(argv: Sequence[str]) -> int:
    """Serve until SIGTERM or Ctrl-C; the exit status is returned."""
    return serve_engine(argv, prog="quire serve")
