"""Data classes of modules that are compiled: an `__init__` that is written down does the same."""

from hack.compile_gateway import with_written_inits

_SOURCE = '''\
from dataclasses import dataclass, field


@dataclass(slots=True)
class Plain:
    """Text."""

    size: int
    name: str = "a"
    """More text."""


@dataclass(slots=True)
class Made:
    names: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class Frozen:
    size: int = 1


last = 1
'''


def test_what_a_data_class_would_make_is_written_down() -> None:
    space: dict[str, object] = {}
    exec(with_written_inits(_SOURCE), space)
    plain = space["Plain"]
    assert callable(plain)
    assert not hasattr(plain, "__dataclass_fields__")
    assert vars(plain(2)) == {"size": 2, "name": "a"}
    assert vars(plain(name="b", size=3)) == {"size": 3, "name": "b"}


def test_what_it_cannot_write_stays() -> None:
    space: dict[str, object] = {}
    exec(with_written_inits(_SOURCE), space)
    assert hasattr(space["Made"], "__dataclass_fields__")
    assert hasattr(space["Frozen"], "__dataclass_fields__")


def test_what_follows_stays_in_its_line() -> None:
    before, after = _SOURCE.splitlines(), with_written_inits(_SOURCE).splitlines()
    assert after.index("last = 1") == before.index("last = 1")
