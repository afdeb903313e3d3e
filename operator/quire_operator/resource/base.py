"""The base of all parts of the resource."""

from typing import ClassVar

from msgspec import Struct

from quire_operator.resource.rules import Rule


class Part(Struct, rename="camel", frozen=True, omit_defaults=True):
    """One object of the resource: immutable, with the names that users write."""

    rules: ClassVar[tuple[Rule, ...]] = ()
    """What its fields forbid each other."""
