"""JSON-Schema-Test-Suite against our grammars: what is taken is heeded, what is not is refused.

Of each schema that is taken, no text of an invalid value may follow the grammar, and what the
grammar writes at random has to be valid. That the grammar has all valid values is not claimed:
where it has not, that is listed here with the reason. Nothing asks a server.
"""

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import jsonschema

from quire_engine.grammar.compiler import CompiledGrammar
from quire_engine.grammar.refusal import SchemaError
from tests.clients.environments import fetch_source
from tests.clients.errors import ClientError
from tests.unit.grammar.walks import accepts, compile_schema, walk

NARROWED = {
    r"ignores? |pseudo-array": "a part without a type has the type that its keywords speak of",
    r"^(additionalProperties|allOf|anyOf|properties|ref|const with object)\b": (
        "members come in the order of the schema, and others only where it says so"
    ),
    r"^(prefixItems|items|uniqueItems)\b": "arrays have no more items than are described",
    r"^(const|enum|type)\b": "a listed value, or a whole number, is written in one way",
    r"^format/|annotation by default": "of a format some right texts are written, and no wrong one",
    r"^pattern .*not anchored": "a pattern is matched by the whole string",
    r"^vocabulary ": "a meta-schema that switches keywords off is not read",
}
"""Why a valid value cannot be written, by the place in the suite; the first that fits."""
_NUM_WALKS = 3
_Validator = jsonschema.Draft202012Validator


@dataclass
class Findings:
    """What came of all schemas."""

    num_taken: int = 0
    num_refused: int = 0
    num_valid: int = 0
    """Valid values of the schemas that are taken."""
    num_narrowed: int = 0
    problems: list[str] = field(default_factory=list)
    reasons: set[str] = field(default_factory=set)
    """Patterns of `NARROWED` that were needed."""


def verify() -> str:
    """Check the suite that the installed jsonschema has in its source distribution.

    Raises
    ------
    ClientError
        A keyword is neither heeded nor refused, or what is listed is not so.
    """
    suite = fetch_source("jsonschema") / "json" / "tests" / "draft2020-12"
    found = Findings()
    for name, group in _groups(suite):
        _check_group(name, group, found)
    found.problems += [
        f"{one!r} is listed and fits nothing" for one in NARROWED.keys() - found.reasons
    ]
    if found.problems:
        raise ClientError("\n".join(found.problems))
    return (
        f"{found.num_taken} schemas are heeded and {found.num_refused} refused; of"
        f" {found.num_valid} valid values {found.num_narrowed} cannot be written, each for a"
        " reason that is listed"
    )


def _groups(suite: Path) -> Iterator[tuple[str, dict[str, Any]]]:
    files = {path.stem: path for path in suite.glob("*.json")}
    formats = (suite / "optional" / "format").glob("*.json")
    files |= {f"format/{path.stem}": path for path in formats}
    if len(files) < 40:
        raise ClientError(f"{suite} has {len(files)} files only")
    for name, path in sorted(files.items()):
        for group in json.loads(path.read_text()):
            yield name, group


def _check_group(name: str, group: dict[str, Any], found: Findings) -> None:
    place = f"{name} {group['description']}"
    try:
        compiled = compile_schema(group["schema"])
    except SchemaError:
        found.num_refused += 1
        return
    found.num_taken += 1
    for test in group["tests"]:
        _check_value(f"{place} {test['description']}", test, compiled, found)
    for seed in range(_NUM_WALKS):
        text = walk(compiled, seed)
        if text is not None and not _is_valid(group["schema"], json.loads(text)):
            found.problems.append(f"{place}: wrote {text[:200]}, which is not valid")


def _check_value(
    place: str, test: dict[str, Any], compiled: CompiledGrammar, found: Findings
) -> None:
    is_written = any(accepts(compiled, text) for text in _spellings(test["data"]))
    if not test["valid"]:
        if is_written:
            found.problems.append(f"{place}: an invalid value can be written")
        return
    found.num_valid += 1
    if is_written:
        return
    found.num_narrowed += 1
    reason = next((one for one in NARROWED if re.search(one, place)), None)
    if reason is None:
        found.problems.append(f"{place}: a valid value cannot be written")
    else:
        found.reasons.add(reason)


def _spellings(value: object) -> Iterator[str]:
    """A value as JSON, in ways that models write it."""
    for is_ascii in (True, False):
        for separators in ((", ", ": "), (",", ":")):
            yield json.dumps(value, ensure_ascii=is_ascii, separators=separators)


def _is_valid(schema: Any, value: object) -> bool:
    return bool(_Validator(schema, format_checker=_Validator.FORMAT_CHECKER).is_valid(value))
