"""One result of a check."""

from collections.abc import Iterable, Iterator
from typing import Literal

import msgspec

Level = Literal["ok", "warn", "fail"]
"""warn: something does not work, or will not; the rest does. fail: nothing is served until it is
mended."""
Findings = Iterator["Finding"]


class Finding(msgspec.Struct, kw_only=True, frozen=True):
    """What a check found."""

    check: str
    """What was looked at."""
    level: Level
    says: str
    """What is so."""
    fix: str = ""
    """A command, or what to do where there is none; empty: nothing."""


def ok(check: str, says: str) -> Finding:
    """All is well."""
    return Finding(check=check, level="ok", says=says)


def warn(check: str, says: str, fix: str) -> Finding:
    """Something does not work."""
    return Finding(check=check, level="warn", says=says, fix=fix)


def fail(check: str, says: str, fix: str) -> Finding:
    """Nothing works."""
    return Finding(check=check, level="fail", says=says, fix=fix)


def worst(findings: Iterable[Finding]) -> Level:
    """The highest level."""
    levels = {one.level for one in findings}
    return "fail" if "fail" in levels else "warn" if "warn" in levels else "ok"
