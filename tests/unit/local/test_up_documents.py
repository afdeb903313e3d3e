"""Whatever is written into FILE is used, or refused with one sentence: it never ends a run."""

import json
import os
from pathlib import Path

import pytest

from quire_local.up.command import parser
from quire_local.up.documents import load_documents
from quire_local.up.resource_file import FileError, read_text
from quire_local.up.watching import WatchedFile

TEXT = """\
apiVersion: serving.quire.dev/v1alpha1
kind: InferenceService
metadata: &metadata {name: llama, annotations: {since: ANNOTATION}, labels: LABEL}
spec: &spec
  model: {source: SOURCE, maxModelLen: LENGTH}
  engine: {extraArgs: FLAGS}
  accelerators: [{name: cpu, pod: POD}]
---
apiVersion: v1
kind: Secret
metadata: {name: keys}
stringData: {team: SECRET}
"""
GOOD = {
    "ANNOTATION": "yesterday",
    "LABEL": "{a: b}",
    "SOURCE": '"hf://a/b"',
    "LENGTH": "4096",
    "FLAGS": "[]",
    "POD": "{}",
    "SECRET": "a-key-that-is-long-enough",
}
_EIGHT = ", ".join(["*{0}"] * 8)
_BOMB = ", ".join(f"&{new} [{_EIGHT.format(old)}]" for old, new in zip("abcdefgh", "bcdefghi"))  # noqa: B905
STRANGE = {
    "no date": "2001-99-99",
    "a date": "2001-01-01",
    "no tagged date": "!!timestamp 2001-99-99",
    "no boolean": "!!bool a",
    "no integer": "!!int a",
    "integer of 5000 digits": "9" * 5000,
    "hexadecimal of 5000 digits": "0x" + "f" * 5000,
    "integer of 30 digits": "9" * 30,
    "not a number": ".nan",
    "infinity": ".inf",
    "lone surrogate": '"\\ud800"',
    "lone surrogate in a name": '{"\\udfff": a}',
    "zero byte": '"\\0"',
    "itself": "*metadata",
    "its spec": "*spec",
    "aliases of aliases": f"[&a [x], {_BOMB}]",
    "bytes": "!!binary aGk=",
    "set": "!!set {a, b}",
    "pairs": "!!omap [a: b]",
    "object of Python": "!!python/object:os.stat {}",
    "key that is a list": "{? [a] : b}",
    "key that is a date": "{2001-01-01: b}",
    "merge of a text": "{<<: a}",
    "equals": "=",
    "null": "null",
    "deep": "[" * 300 + "]" * 300,
    "too deep": "[" * 5000 + "]" * 5000,
}


def text(**values: str) -> bytes:
    made = TEXT
    for name, value in (GOOD | values).items():
        made = made.replace(name, value)
    return made.encode()


@pytest.mark.parametrize("name", ["modèle", "モデル", "a b", 'a"b'])
def test_a_models_name_that_a_cluster_refuses_is_refused(name: str) -> None:
    body = text(SOURCE=f'"hf://a/b", name: {json.dumps(name)}')
    with pytest.raises(FileError, match=r"spec\.model\.name"):
        read_text(body, "file")


@pytest.mark.parametrize("value", STRANGE.values(), ids=STRANGE.keys())
@pytest.mark.parametrize("place", GOOD)
def test_a_strange_value_anywhere_is_used_or_refused(place: str, value: str) -> None:
    before = read_text(text(), "services.yaml")
    for old in (None, before):
        try:
            found = read_text(text(**{place: value}), "services.yaml", old)
        except FileError as error:
            told = str(error)
            assert told.startswith("services.yaml")
            assert "report this" not in told
            assert told.isprintable()
            assert told.encode()
            assert len(told) < 1000
        else:
            json.dumps(list(found.bodies.values()), allow_nan=False)


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ({"LENGTH": "2001-99-99"}, "got `str` - at `spec.model.maxModelLen`"),
        ({"LENGTH": "9" * 5000}, "line 5: it has an integer of more than 64 bits"),
        ({"ANNOTATION": "5"}, "metadata.annotations.since is no text: put it into quotes"),
        ({"ANNOTATION": "*metadata"}, "an alias (*name) may not be in its own anchor"),
        ({"ANNOTATION": '"\\ud800"'}, "half of a surrogate pair"),
        ({"SOURCE": '"hf://a/\\ud800"'}, "half of a surrogate pair"),
        ({"LABEL": STRANGE["aliases of aliases"]}, "more than 100000 fields and items"),
    ],
)
def test_an_edit_is_refused_with_what_is_wrong_and_changes_nothing(
    tmp_path: Path, values: dict[str, str], words: str
) -> None:
    path = tmp_path / "services.yaml"
    path.write_bytes(text())
    watched = WatchedFile(path)
    good = watched.resources
    path.write_bytes(text(**values))
    os.utime(path, ns=(5, 5))
    assert not watched.has_changed()
    assert watched.has_changed()
    assert words in watched.problem
    assert watched.resources is good


@pytest.mark.parametrize(
    ("again", "words"),
    [
        ("spec: {model: {}}\n", "'spec' is there twice, in lines 4 and 8"),
        (
            'metadata: {labels: {a: "1", b: "2", "a": "3"}}\n',
            "'a' is there twice, in lines 8 and 8",
        ),
    ],
)
def test_a_field_that_is_there_twice_is_refused_with_its_lines(again: str, words: str) -> None:
    with pytest.raises(FileError) as caught:
        read_text(text().replace(b"---\n", again.encode() + b"---\n"), "services.yaml")
    assert words in str(caught.value)


def test_a_merge_may_be_overridden() -> None:
    merged = b"- &a {x: 1}\n- &b {<<: *a, x: 2}\n- {<<: *b, x: 3}\n"
    assert load_documents(merged) == [[{"x": 1}, {"x": 2}, {"x": 3}]]


def test_dates_are_texts_as_kubectl_has_them() -> None:
    (found,) = read_text(text(ANNOTATION="2001-01-01"), "services.yaml").services.values()
    assert found.annotations == {"since": "2001-01-01"}


def test_a_bug_of_the_checks_is_an_error_of_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> list[str]:
        raise RuntimeError("no overload")

    monkeypatch.setattr("quire_local.up.resource_file.find_problems", fail)
    with pytest.raises(FileError, match=r"cannot be checked \(RuntimeError: no overload\)"):
        read_text(text(), "services.yaml")


def test_one_file_may_be_given(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["-f", "a.yaml", "--file", "b.yaml"])
    assert "--file may be given once" in capsys.readouterr().err
    for default in (None, "c.yaml"):
        assert parser(default_file=default).parse_args(["-f", "a.yaml"]).file == "a.yaml"


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("a: " + "9" * 5000, "line 1: it has an integer of more than 64 bits"),
        ("a: 0\nb: -" + "9_" * 5000, "line 2: it has an integer of more than 64 bits"),
        ("a: !!int x", "line 1: 'x' is no integer"),
        ("a: !!int ''", "line 1: '' is no integer"),
        ("---\n" * 5000, "more than 1000 documents"),
        ("a: 1", "document 1 is of no apiVersion and kind: only"),
        (text(LENGTH="0").decode().replace("llama", "9-a"), "(InferenceService 9-a): "),
        (text().decode().replace("llama", "9-a"), "(InferenceService 9-a): metadata.name must"),
    ],
)
def test_what_is_wrong_is_said_in_words_of_the_file(written: str, said: str) -> None:
    with pytest.raises(FileError) as refused:
        read_text(written.encode(), "f.yaml")
    assert said in str(refused.value)
    assert "sys." not in str(refused.value)
