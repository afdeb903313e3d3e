"""Several services in a file, each with flags of its own.

    - {name: chat, priority: 5, generate: diurnal, requests-per-second: 8}
    - {name: documents, trace: documents.csv, model: llama3.2-3b, max-replicas: 4}

What a service does not say is as the command line has it.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from quire_engine.errors import ConfigError

OWN_FLAGS = frozenset(
    (
        "trace",
        "generate",
        "requests-per-second",
        "seconds",
        "times",
        "skip-bad-rows",
        "seed",
        "model",
        "quantization",
        "max-model-len",
        "slo-time-to-first-token",
        "slo-time-per-output-token",
        "percentile",
        "target",
        "admission",
        "max-tokens",
        "min-replicas",
        "max-replicas",
        "max-cost-per-hour",
        "gateways",
        "fail-hours",
        "event",
    )
)
"""GPUs, their prices and how long they take to start are those of all."""


@dataclass(frozen=True, kw_only=True)
class ServiceEntry:
    """One of them."""

    name: str
    priority: int
    flags: tuple[str, ...]
    """As on a command line."""


class _Loader(yaml.SafeLoader):
    """A loader that takes no key twice: YAML's own keeps the last one and says nothing."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        """Return a mapping, each key of it once."""
        known = set()
        for key, _ in node.value:
            if key.value in known:
                raise yaml.constructor.ConstructorError(
                    problem=f"{key.value} is there twice", problem_mark=key.start_mark
                )
            if isinstance(key, yaml.ScalarNode):
                known.add(key.value)
        return super().construct_mapping(node, deep)


def read_services(path: Path) -> list[ServiceEntry]:
    """Read the file.

    Raises
    ------
    ConfigError
        It cannot be read, is no list of services, or one says what there is not.
    """
    try:
        found = _Loader(path.read_text(encoding="utf-8")).get_single_data()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is no YAML: {' '.join(str(error).split())}") from None
    if not isinstance(found, list) or not found:
        raise ConfigError(
            f"{path}: write a list of services, such as"
            " `- {name: chat, priority: 5, generate: diurnal}`"
        )
    entries = [_entry(path, number, one) for number, one in enumerate(found, 1)]
    for number, entry in enumerate(entries, 1):
        first = next(at for at, one in enumerate(entries, 1) if one.name == entry.name)
        if first < number:
            raise ConfigError(
                f"{path}: services {first} and {number} are both named {entry.name}: give each a"
                " name of its own"
            )
    return entries


def _entry(path: Path, number: int, found: object) -> ServiceEntry:
    where = f"{path}: service {number}"
    if not isinstance(found, dict):
        raise ConfigError(f"{where} is no mapping: write `name: chat` and its flags")
    name, priority = found.get("name"), found.get("priority", 0)
    if not isinstance(name, str) or not name:
        raise ConfigError(f"{where} has no name: add `name: ...`")
    if isinstance(priority, bool) or not isinstance(priority, int):
        raise ConfigError(f"{where}: priority {priority!r} is no whole number")
    rest = {key: value for key, value in found.items() if key not in ("name", "priority")}
    _check_known(f"{where} ({name})", rest)
    flags = [flag for key, value in rest.items() for flag in _flags(key, value)]
    return ServiceEntry(name=name, priority=priority, flags=tuple(flags))


def _check_known(where: str, keys: Collection[object]) -> None:
    unknown = [str(key) for key in keys if key not in OWN_FLAGS]
    if unknown:
        raise ConfigError(
            f"{where}: a service has no {', '.join(unknown)} of its own; there are name, priority,"
            f" {', '.join(sorted(OWN_FLAGS))}"
        )


def _flags(key: str, value: object) -> list[str]:
    if isinstance(value, bool):
        return [f"--{key}"] if value else []
    values = value if isinstance(value, list) else [value]
    return [f"--{key}={one}" for one in values]
