"""Commands on the pages: programs, flags, targets, files and values that there are."""

import re
from functools import cache
from itertools import pairwise
from typing import Any

import pytest

from hack.cli_page import parser_of
from quire_local.cli import COMMANDS
from tests.docs.commands import commands_of
from tests.docs.pages import ROOT, Block, blocks_in
from tests.docs.test_samples import VALUES_SCHEMA, fields

PROGRAMS = (
    "apt-get", "cat", "curl", "docker", "done", "export", "for", "helm", "kill", "kind", "kubectl",
    "make", "openssl", "printf", "quire", "sed", "sha256sum", "vllm", ".../kubectl",
)  # fmt: skip
_MODULES = {"quire_gateway": "quire_gateway.__main__", "quire_operator": "quire_operator.__main__"}
_FLAG = re.compile(r"--[a-z][a-z-]*")
_FILES = re.compile(r"(?:charts|images|manifests)/[\w./-]+")

SHELL = blocks_in("sh", "console")


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_each_program_is_known(block: Block) -> None:
    for words in commands_of(block):
        assert program(words) in PROGRAMS or module(words) is not None, words


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_each_flag_of_ours_is_one(block: Block) -> None:
    for words in commands_of(block):
        if (name := module(words)) is not None:
            unknown = {one.partition("=")[0] for one in words if _FLAG.match(one)} - flags(name)
            assert not unknown, f"{' '.join(words)}: {unknown}"


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_each_target_and_file_is_there(block: Block) -> None:
    targets = re.findall(r"^([a-z][a-z-]*):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    for words in commands_of(block):
        if program(words) == "make":
            assert next(one for one in words[1:] if "=" not in one) in targets, words
        for path in _FILES.findall(" ".join(words)):
            assert (ROOT / path.replace("$image", "engine")).exists(), path


@pytest.mark.parametrize("block", SHELL, ids=str)
def test_each_value_that_helm_is_given_is_one_of_the_chart(block: Block) -> None:
    for words in commands_of(block):
        if program(words) == "helm":
            for before, word in pairwise(words):
                if before == "--set":
                    assert is_value(word.partition("=")[0].split(".")), word


def program(words: list[str]) -> str:
    return words[0].removeprefix(".venv/bin/")


def module(words: list[str]) -> str | None:
    """Which of our commands this is, by its module."""
    if program(words) == "quire" and not words[1].startswith("-"):
        return COMMANDS[words[1]].module
    if program(words) == "python" and words[1] == "-m":
        return _MODULES.get(words[2], words[2] if words[2] in _MODULES else None)
    return None


@cache
def flags(name: str) -> frozenset[str]:
    """What a command takes."""
    if name == "quire_gateway.__main__":
        text = (ROOT / "docs/reference/gateway.md").read_text("utf-8")
        return frozenset(re.findall(r"^\| `(--[a-z-]+)`", text, re.MULTILINE))
    parser = parser_of(name)
    return (
        frozenset(one for action in parser._actions for one in action.option_strings)
        if parser
        else frozenset()
    )


def is_value(names: list[str]) -> bool:
    schema: dict[str, Any] = VALUES_SCHEMA
    for name in names:
        if name not in fields(schema):
            return False
        schema = fields(schema)[name]
    return True
