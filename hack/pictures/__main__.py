"""Draws the pictures of the pages on concepts: `python -m hack.pictures [--check]`."""

import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path

from hack.generated import write_or_check
from hack.pictures import cache, engine, fleet

_FOLDER = Path("docs/images/concepts")
_PICTURES: dict[str, Callable[[int], str]] = {
    "overview": fleet.overview,
    "blocks": cache.blocks,
    "admission": cache.admission,
    "routing": fleet.routing,
    "scaling": fleet.scaling,
    "batch-invariance": engine.batch_invariance,
    "drain": engine.drain,
}
_ENDINGS = ("svg", "zh.svg")


def files() -> dict[Path, Callable[[], str]]:
    """Each picture in both languages, and what draws it."""
    return {
        _FOLDER / f"{name}.{ending}": partial(draw, language)
        for name, draw in _PICTURES.items()
        for language, ending in enumerate(_ENDINGS)
    }


if __name__ == "__main__":
    sys.exit(write_or_check("hack.pictures", files(), "docs"))
