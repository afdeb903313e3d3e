"""`quire version`: what is installed, for bug reports."""

import platform
from collections.abc import Sequence
from importlib import metadata

from quire_engine import __version__
from quire_local.parser import Parser

_PARTS = ("torch", "triton", "fastapi", "uvicorn", "msgspec", "tokenizers")


def main(argv: Sequence[str]) -> int:
    """Print the version of quire, of Python and of the parts that matter most."""
    Parser(prog="quire version", description=__doc__).parse_args(argv)
    print(f"quire {__version__}")
    print(f"python {platform.python_version()} on {platform.system()} {platform.machine()}")
    for part in _PARTS:
        print(f"{part} {_installed(part)}")
    return 0


def _installed(distribution: str) -> str:
    try:
        return metadata.version(distribution)
    except metadata.PackageNotFoundError:
        return "not installed"
