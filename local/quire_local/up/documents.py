"""YAML as `kubectl` takes it: documents that are JSON could hold as well.

Nothing that passes here can fail or hang later for its form alone: what is left are texts in
UTF-8, numbers of 64 bits, and objects and lists that end.
"""

import math
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

import yaml

_MAX_NODES = 100_000
"""Fields and items of a document, aliases written out; an API server takes fewer bytes of them."""
_MAX_DEPTH = 100
_MAX_DOCUMENTS = 1000
_TOO_LARGE = "it has an integer of more than 64 bits"
_DIGITS = re.compile(r"[-+]?[0-9_:]+")
_TIMESTAMP = "tag:yaml.org,2002:timestamp"


class DocumentError(Exception):
    """A text is no such document; the message says why."""


class _Loader(yaml.SafeLoader):
    """Dates stay texts, as `kubectl` has them: JSON has no dates. A field is there once."""

    yaml_implicit_resolvers = {  # noqa: RUF012 - as the base class has it
        first: [one for one in several if one[0] != _TIMESTAMP]
        for first, several in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:  # noqa: ANN401 - its stub errs
        """Compose an object, or refuse it for a field that it has twice."""
        node = super().compose_mapping_node(anchor)
        lines: dict[tuple[str, str], int] = {}
        for name, _ in node.value:
            if not isinstance(name, yaml.ScalarNode):
                continue
            line, key = name.start_mark.line + 1, (name.tag, name.value)
            if key in lines:
                raise DocumentError(
                    f"the field {name.value[:80]!a} is there twice, in lines {lines[key]} and"
                    f" {line}: the second would take the place of the first; put them together"
                )
            lines[key] = line
        return node

    def construct_yaml_int(self, node: Any) -> int:  # noqa: ANN401 - its stub errs
        """Read an integer: one that is too long to be read is too large anyhow."""
        try:
            value: int = super().construct_yaml_int(node)
        except (ValueError, IndexError):
            is_number = bool(_DIGITS.fullmatch(node.value))
            raise DocumentError(
                f"line {node.start_mark.line + 1}: "
                + (_TOO_LARGE if is_number else f"{node.value[:80]!a} is no integer")
            ) from None
        return value


_Loader.add_constructor("tag:yaml.org,2002:int", _Loader.construct_yaml_int)


def load_documents(text: bytes) -> list[object]:
    """Read all documents that are not empty.

    Raises
    ------
    DocumentError
        It is no YAML, or holds what JSON cannot.
    """
    try:
        documents = list(islice(yaml.load_all(text, _Loader), _MAX_DOCUMENTS + 1))
    except DocumentError:
        raise
    except RecursionError as error:
        raise DocumentError("it is nested too deeply") from error
    except Exception as error:  # of its own kinds, and what a value of a wrong form raises
        raise DocumentError(" ".join(str(error).split())) from error
    if len(documents) > _MAX_DOCUMENTS:
        raise DocumentError(f"it has more than {_MAX_DOCUMENTS} documents")
    found = [one for one in documents if one is not None]
    for document in found:
        _check(document)
    return found


def _check(document: object) -> None:
    num_nodes = 0
    level = [document]
    for _ in range(_MAX_DEPTH):
        num_nodes += len(level)
        for one in level:
            _check_scalar(one)
        room = max(0, _MAX_NODES - num_nodes) + 1
        level = list(islice((part for one in level for part in _parts(one)), room))
        if num_nodes + len(level) > _MAX_NODES:
            raise DocumentError(f"it has more than {_MAX_NODES} fields and items")
        if not level:
            return
    raise DocumentError(
        f"it is nested more than {_MAX_DEPTH} deep; an alias (*name) may not be in its own anchor"
    )


def _parts(value: object) -> Iterator[object]:
    if isinstance(value, Mapping):
        for name, one in value.items():
            yield name
            yield one
    elif isinstance(value, list):
        yield from value


def _check_scalar(value: object) -> None:
    if isinstance(value, str):
        try:
            value.encode()
        except UnicodeEncodeError:
            raise DocumentError(
                f"{value[:80]!a} has half of a surrogate pair, which is no character"
            ) from None
    elif isinstance(value, bool) or value is None:
        return
    elif isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise DocumentError(_TOO_LARGE)
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise DocumentError("it has a number that is not finite")
    elif not isinstance(value, Mapping | list):
        raise DocumentError(f"it has a {type(value).__name__}, which JSON has not: quote it")
