"""What the processor is and can do, as /proc/cpuinfo says it."""

from __future__ import annotations

import platform
from pathlib import Path

_FEATURES = ("flags", "Features")


def list_features() -> frozenset[str]:
    """Its instruction sets; empty where the system does not tell."""
    return frozenset(word for line in _lines(*_FEATURES) for word in line.split(":", 1)[-1].split())


def describe_processor() -> str:
    """Return what tells processors apart whose native code differs."""
    facts = _lines(*_FEATURES, "model", "cpu family", "CPU part")
    return "\n".join([platform.machine(), *(facts or [platform.processor()])])


def _lines(*names: str) -> list[str]:
    """The lines that begin with these names, each once."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        return []
    return sorted({line for line in lines if line.split("\t")[0].rstrip() in names})
