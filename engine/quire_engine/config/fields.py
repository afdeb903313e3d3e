"""Every setting of an engine, read from the dataclasses in `quire_engine.config.engine`.

There is no second list: names, types, defaults, ranges and documentation are taken from the
classes themselves, the documentation from the text that stands under a field in the source.
"""

import ast
import inspect
from dataclasses import MISSING, Field, dataclass, fields
from functools import cache
from typing import get_args, get_type_hints

from quire_engine.config.engine import EngineConfig


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One field of one section of `EngineConfig`."""

    section: str
    """The section's name in a configuration file, such as cache."""
    name: str
    accepts: object
    """The field's annotation without None: what `msgspec.convert` is given."""
    is_optional: bool
    """Whether None, "not set", is one of its values."""
    default: object
    help: str

    @property
    def flag(self) -> str:
        """Its name on the command line."""
        return "--" + self.name.replace("_", "-")

    @property
    def variable(self) -> str:
        """Its name in the environment."""
        return "QUIRE_" + self.name.upper()

    @property
    def is_switch(self) -> bool:
        """Whether it is either on or off."""
        return self.accepts is bool

    @property
    def default_text(self) -> str:
        """Its default as it would be given in the environment; empty if it has none."""
        if self.default is None:
            return ""
        return str(self.default).lower() if self.is_switch else str(self.default)


@cache
def settings() -> tuple[Setting, ...]:
    """All settings, in the order of the source; read once."""
    found = [setting for section in sections() for setting in _settings_of(section)]
    names = [setting.name for setting in found]
    if twice := {name for name in names if names.count(name) > 1}:
        raise RuntimeError(f"bug: settings with the same name and flag: {sorted(twice)}")
    return tuple(found)


@cache
def sections() -> dict[str, type]:
    """The sections of `EngineConfig`, by name."""
    return get_type_hints(EngineConfig)


@cache
def by_name() -> dict[str, Setting]:
    """All settings by name."""
    return {setting.name: setting for setting in settings()}


def _settings_of(section: str) -> list[Setting]:
    owner = sections()[section]
    hints = get_type_hints(owner, include_extras=True)
    texts = documentation(owner)
    return [_setting(section, item, hints[item.name], texts[item.name]) for item in fields(owner)]


def _setting(section: str, item: "Field[object]", annotation: object, text: str) -> Setting:
    if item.default is MISSING:
        raise RuntimeError(f"bug: setting {section}.{item.name} has no default")
    members = get_args(annotation)
    is_optional = type(None) in members
    accepts = members[0] if is_optional else annotation
    if is_optional and len(members) != 2:
        raise RuntimeError(f"bug: setting {section}.{item.name} may only be one type, or None")
    return Setting(
        section=section,
        name=item.name,
        accepts=accepts,
        is_optional=is_optional,
        default=item.default,
        help=text,
    )


@cache
def documentation(owner: type) -> dict[str, str]:
    """The text under each field of a dataclass, in one line.

    Raises
    ------
    RuntimeError
        A field has no text: a setting that nobody can understand is a bug.
    """
    tree = ast.parse(inspect.getsource(owner))
    body = [member for node in tree.body if isinstance(node, ast.ClassDef) for member in node.body]
    texts = {}
    for node, following in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            texts[node.target.id] = _text(following)
    if missing := [name for name, text in texts.items() if not text]:
        raise RuntimeError(f"bug: no text under {owner.__name__}'s fields {missing}")
    return texts


def _text(node: ast.stmt | None) -> str:
    if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
        return " ".join(str(node.value.value).split())
    return ""
