"""Files that are made from others: written, or compared with what they should be."""

import argparse
import difflib
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

_ROOT = Path(__file__).resolve().parent.parent


def write_or_check(module: str, files: Mapping[Path, Callable[[], str]], target: str) -> int:
    """Write the files; with --check, compare them instead and fail on a difference.

    Parameters
    ----------
    module
        Whose command line this is, for its help.
    files
        Path from the repository's root, and what makes the text.
    target
        The make target that writes them.
    """
    parser = argparse.ArgumentParser(prog=f"python -m {module}")
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    is_check = parser.parse_args().check
    stale = [path for path, render in files.items() if not _update(path, render(), is_check)]
    for path in stale:
        print(f"{path} is stale: run make {target} and commit it", file=sys.stderr)
    return 1 if stale else 0


def _update(path: Path, wanted: str, is_check: bool) -> bool:
    """Whether the file is now as wanted; shows the difference where it is not."""
    file = _ROOT / path
    current = file.read_text() if file.exists() else ""
    if current == wanted:
        return True
    if is_check:
        lines = difflib.unified_diff(
            current.splitlines(), wanted.splitlines(), str(path), "generated", lineterm=""
        )
        print("\n".join(lines))
        return False
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(wanted)
    print(f"wrote {path}")
    return True
