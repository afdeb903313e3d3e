"""Reads the seed's configuration file; a key that it does not know is an error."""

import json
from collections.abc import Mapping
from dataclasses import fields
from pathlib import Path
from typing import Any

from quire_engine.config.fields import sections
from quire_engine.config.values import nearest, read_json, shown
from quire_engine.errors import ConfigError
from quire_local.seeds.settings import (
    BackendChoice,
    CommandChoice,
    Limits,
    SeedConfig,
    Serving,
    TokenizerChoice,
    plain_settings,
)

_ONLY_OURS = frozenset(sections()) - {"tokenizer", "serving"}


def read_file(path: Path) -> SeedConfig:
    """Read config.json.

    Raises
    ------
    ConfigError
        The file cannot be read, or has an unknown key or a wrong value.
    """
    content = _load(path)
    if ours := _ONLY_OURS & content.keys():
        raise ConfigError(
            f'{path} has "{min(ours)}", a section of quire\'s own settings: start it with '
            f"quire serve --config {path}"
        )
    limits = _section(path, "", content, Limits, inside=("tokenizer", "serving"))
    tokenizer = _object(path, "tokenizer", content)
    serving = _object(path, "serving", content) or {}
    return SeedConfig(
        limits=Limits(**limits),
        tokenizer=None if tokenizer is None else _tokenizer(path, tokenizer),
        serving=_serving(path, serving),
    )


def _tokenizer(path: Path, content: dict[str, Any]) -> TokenizerChoice:
    choice = TokenizerChoice(**_section(path, "tokenizer", content, TokenizerChoice))
    if choice.kind == "huggingface" and choice.path is None:
        raise ConfigError(f"{path}: tokenizer.kind is huggingface, but tokenizer.path is not set")
    if choice.kind == "simple" and choice.path is not None:
        raise ConfigError(f"{path}: tokenizer.path is only for the kind huggingface: remove it")
    return choice


def _serving(path: Path, content: dict[str, Any]) -> Serving:
    values = _section(path, "serving", content, Serving, inside=("backend",))
    backend = _object(path, "serving.backend", content)
    return (
        Serving(**values) if backend is None else Serving(**values, backend=_backend(path, backend))
    )


def _backend(path: Path, content: dict[str, Any]) -> BackendChoice:
    values = _section(path, "serving.backend", content, BackendChoice, inside=("command",))
    found = _object(path, "serving.backend.command", content)
    choice = BackendChoice(**values, command=None if found is None else _command(path, found))
    if choice.kind == "command_bridge" and choice.command is None:
        raise ConfigError(
            f"{path}: serving.backend.kind is command_bridge, but serving.backend.command is not "
            "set: give it a program and args"
        )
    if choice.kind == "local_engine" and choice.command is not None:
        raise ConfigError(
            f"{path}: serving.backend.command is only for the kind command_bridge: remove it"
        )
    return choice


def _command(path: Path, content: dict[str, Any]) -> CommandChoice:
    where = "serving.backend.command"
    values = _section(path, where, content, CommandChoice, inside=("args",))
    if "program" not in values:
        raise ConfigError(f"{path}: {where}.program is not set")
    args = content.get("args")
    args = [] if args is None else args
    if not isinstance(args, list) or not all(isinstance(word, str) for word in args):
        raise ConfigError(f"{path}: {where}.args is {shown(args)}, but accepts a list of texts")
    if any("\0" in word for word in [values["program"], *args]):
        raise ConfigError(f"{path}: {where} holds a NUL character, which no program can be given")
    return CommandChoice(**values, args=tuple(args))


def _section(
    path: Path, where: str, content: Mapping[str, Any], owner: type, inside: tuple[str, ...] = ()
) -> dict[str, Any]:
    """The single values of a section; keys for sections inside it are left to others."""
    known = plain_settings(owner)
    values = {}
    for name, value in content.items():
        full = f"{where}.{name}" if where else name
        if name in known:
            values[name] = read_json(known[name], value, f"{path}: {full}")
        elif name not in inside:
            names = [item.name for item in fields(owner)] + list(inside)
            hint = nearest(name, names) or f"; there are {', '.join(dict.fromkeys(names))}"
            raise ConfigError(f'{path}: unknown key "{full}"{hint}')
    return values


def _object(path: Path, where: str, content: Mapping[str, Any]) -> dict[str, Any] | None:
    """A section inside a section; null is the same as leaving it out."""
    found = content.get(where.rpartition(".")[2])
    if found is not None and not isinstance(found, dict):
        raise ConfigError(f"{path}: {where} is {shown(found)}, but accepts an object")
    return found


def _load(path: Path) -> dict[str, Any]:
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(f"cannot read the configuration file {path}: {reason}") from error
    except ValueError as error:
        raise ConfigError(f"the configuration file {path} is not valid JSON: {error}") from error
    if not isinstance(content, dict):
        raise ConfigError(f"the configuration file {path} is not a JSON object")
    return content
