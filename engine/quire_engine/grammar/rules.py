"""Rules of a grammar while it is written: named alternatives, and which of them can end.

A schema may ask for what does not exist, such as an object that holds itself for ever. A rule is
kept only if some text ends it; what needs a rule that is not kept goes with it, and a grammar whose
root goes has no text at all.
"""

from collections.abc import Iterable, Sequence

ROOT = "root"


class Ref(str):
    """The name of a rule, where it is used."""

    __slots__ = ()


class Repeat(Ref):
    """A rule, used several times in a row."""

    __slots__ = ("times",)
    times: str
    """How often, as GBNF writes it."""

    def __new__(cls, name: str, times: str) -> "Repeat":
        """Use a rule so often."""
        made = super().__new__(cls, name)
        made.times = times
        return made


Item = str
"""A `Ref`, or a piece of GBNF without references."""
Alternative = tuple[Item, ...]


def literal(text: str) -> str:
    """Write a fixed text as GBNF."""
    return '"' + "".join(map(_escape, text)) + '"'


class Rules:
    """Alternatives by the name of their rule."""

    def __init__(self) -> None:
        self._rules: dict[str, list[Alternative]] = {}

    def __len__(self) -> int:
        return len(self._rules)

    def reserve(self, hint: str) -> Ref:
        """Name a rule whose alternatives come later, by `define`."""
        name = Ref(f"{hint}-{len(self._rules)}")
        self._rules[name] = []
        return name

    def define(self, name: str, alternatives: Iterable[Sequence[Item]]) -> Ref:
        """Say what a rule is; none of the alternatives is a rule that no text matches."""
        self._rules[name] = [tuple(alternative) for alternative in alternatives]
        return Ref(name)

    def is_defined(self, name: str) -> bool:
        """Whether there is a rule of this name."""
        return name in self._rules

    def add(self, hint: str, *alternatives: Sequence[Item]) -> Ref:
        """Make a rule of these alternatives."""
        return self.define(self.reserve(hint), alternatives)

    def define_once(self, name: str, *alternatives: Sequence[Item]) -> Ref:
        """Make a rule that many use, by its own name."""
        if name not in self._rules:
            self.define(name, alternatives)
        return Ref(name)

    def can_end(self) -> set[str]:
        """Return the rules that some finite text matches."""
        ending: set[str] = set()
        grows = True
        while grows:
            new = {
                name
                for name, alternatives in self._rules.items()
                if name not in ending and any(_ends(a, ending) for a in alternatives)
            }
            ending |= new
            grows = bool(new)
        return ending

    def write(self, root: Ref) -> str | None:
        """Write the grammar that begins with a rule; None if no text matches it."""
        ending = self.can_end()
        if root not in ending:
            return None
        lines = [f"{ROOT} ::= {root}"]
        pending, written = [str(root)], {str(root)}
        while pending:
            name = pending.pop()
            kept = [a for a in self._rules[name] if _ends(a, ending)]
            lines.append(f"{name} ::= " + " | ".join(map(_write, kept)))
            used = {str(item) for a in kept for item in a if isinstance(item, Ref)}
            pending += sorted(used - written)
            written |= used
        return "\n".join(lines) + "\n"


def _ends(alternative: Alternative, ending: set[str]) -> bool:
    return all(item in ending for item in alternative if isinstance(item, Ref))


def _write(alternative: Alternative) -> str:
    return " ".join(map(_write_item, alternative)) or '""'


def _write_item(item: Item) -> str:
    return f"{item}{item.times}" if isinstance(item, Repeat) else item


def _escape(character: str) -> str:
    if character in '"\\':
        return "\\" + character
    code = ord(character)
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    return character
