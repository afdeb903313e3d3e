"""The chart's values with what values.yaml says of them: the source of its schema and README."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

CHART = Path(__file__).parents[2] / "charts" / "quire"


@dataclass(frozen=True)
class Value:
    """One value that a user can set."""

    path: tuple[str, ...]
    default: Any
    description: str

    @property
    def name(self) -> str:
        """As `--set` has it."""
        return ".".join(self.path)

    @property
    def is_needed(self) -> bool:
        """Whether its absence means nothing to templates; that of an empty value does."""
        return self.default != "" and isinstance(self.default, int | str)


def read_values(text: str) -> list[Value]:
    """Values in the order of the file.

    A mapping is a section where a key in it has a comment, and else a value as a whole.

    Raises
    ------
    ValueError
        A value of a section has no comment before it.
    """
    root = yaml.compose(text)
    if not isinstance(root, yaml.MappingNode):
        raise TypeError("values.yaml is no mapping")
    return list(_values(root, (), text.splitlines()))


def _values(node: yaml.MappingNode, path: tuple[str, ...], lines: list[str]) -> Iterator[Value]:
    for key, value in node.value:
        here = (*path, str(key.value))
        comment = _comment_before(key.start_mark.line, lines)
        if isinstance(value, yaml.MappingNode) and _is_section(value, lines):
            yield from _values(value, here, lines)
        elif comment:
            yield Value(here, yaml.SafeLoader("").construct_document(value), comment)
        else:
            raise ValueError(f"values.yaml: {'.'.join(here)} has no comment")


def _is_section(node: yaml.MappingNode, lines: list[str]) -> bool:
    return not node.flow_style and any(
        _comment_before(key.start_mark.line, lines)
        or (isinstance(value, yaml.MappingNode) and _is_section(value, lines))
        for key, value in node.value
    )


def _comment_before(line: int, lines: list[str]) -> str:
    """The comment that ends just before a line, as one text."""
    first = line
    while first and lines[first - 1].lstrip().startswith("#"):
        first -= 1
    return " ".join(one.strip().removeprefix("#").strip() for one in lines[first:line])
