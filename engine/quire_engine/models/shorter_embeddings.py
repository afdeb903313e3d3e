"""Whether a model's embeddings may be cut short: only those that were trained for it."""

from dataclasses import dataclass
from pathlib import Path

from quire_engine.errors import ModelError
from quire_engine.models.facts import read_json


@dataclass(frozen=True, slots=True)
class ShorterEmbeddings:
    """Lengths below the model's own that its embeddings may have."""

    are_allowed: bool = False
    sizes: tuple[int, ...] = ()
    """None stands for any."""

    def allow(self, size: int) -> bool:
        """Whether an embedding may have this length."""
        return self.are_allowed and (not self.sizes or size in self.sizes)

    def describe(self) -> str:
        """What else is possible, in words that follow the model's own length."""
        if not self.are_allowed:
            return " dimensions, and were not trained to be cut short"
        sizes = ", ".join(map(str, self.sizes))
        return f" dimensions, or {sizes}" if sizes else " dimensions, or fewer"


def read_shorter_embeddings(model_path: Path | None) -> ShorterEmbeddings:
    """Read `is_matryoshka` and `matryoshka_dimensions` of config.json, as vLLM does.

    Raises
    ------
    ModelError
        They are not a truth value and whole numbers.
    """
    path = None if model_path is None else model_path / "config.json"
    if path is None or not path.is_file():
        return ShorterEmbeddings()
    facts = read_json(path)
    is_any, sizes = facts.get("is_matryoshka", False), facts.get("matryoshka_dimensions") or []
    if not isinstance(is_any, bool) or not isinstance(sizes, list):
        raise ModelError(
            "config.json: is_matryoshka must be true or false, and matryoshka_dimensions a list"
        )
    if not all(isinstance(size, int) and size > 0 for size in sizes):
        raise ModelError("config.json: matryoshka_dimensions must be whole numbers above 0")
    return ShorterEmbeddings(is_any or bool(sizes), tuple(sorted(sizes)))
