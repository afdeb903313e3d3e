"""What a body may have in some place, for errors that say more than that a value is wrong."""

import re
from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import msgspec

_STEP = re.compile(r"\.(\w+)|\[(\d+|\.\.\.)\]")
Node = dict[str, Any]


def allowed_values(kind: object, place: str) -> list[str]:
    """Return the texts that may stand in a place of which only some are allowed.

    Parameters
    ----------
    kind
        The body's type.
    place
        As msgspec names it, without the `$`: `.messages[0].role`.
    """
    root, components = _describe(kind)
    nodes = list(_expand(root, components))
    for name, index in _STEP.findall(place):
        below = [child for node in nodes for child in _children(node, name, index)]
        nodes = [node for child in below for node in _expand(child, components)]
    values = [value for node in nodes for value in (*node.get("enum", ()), node.get("const"))]
    return list(dict.fromkeys(value for value in values if isinstance(value, str)))


@lru_cache(maxsize=32)
def _describe(kind: object) -> tuple[Node, dict[str, Node]]:
    (root,), components = msgspec.json.schema_components((kind,), ref_template="{name}")
    return root, components


def _expand(node: Node, components: dict[str, Node]) -> Iterator[Node]:
    """Each of what a node may be."""
    if "$ref" in node:
        yield from _expand(components[node["$ref"]], components)
    for one in (*node.get("anyOf", ()), *node.get("oneOf", ())):
        yield from _expand(one, components)
    yield node


def _children(node: Node, name: str, index: str) -> Iterator[Node]:
    """What is below: a member by its name, an item, or a member of any name."""
    found = node.get("properties", {}).get(name) if name else node.get("items")
    if index == "..." and found is None:
        found = node.get("additionalProperties")
    if isinstance(found, dict):
        yield found
