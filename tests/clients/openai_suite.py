"""openai-python's own tests, from its source distribution, against our server.

The suite is generated from OpenAI's description of its API and sends made-up values to a server
that takes any. What it asks for beyond this server's routes, and values that no model can follow,
is listed here with the reason. What is listed must fail, and with its values made possible it
must pass.
"""

import os
import re
import subprocess
import sys
import tempfile
import xml.etree.ElementTree as ET
from pathlib import Path

from tests.clients.environments import fetch_source
from tests.clients.errors import ClientError

MODELS = ("gpt-6-astra", "gpt-3.5-turbo-instruct")
"""Names that the suite asks for."""
CHAT, COMPLETIONS, MODELS_TESTS = (
    f"tests/api_resources/{name}.py"
    for name in ("chat/test_completions", "test_completions", "test_models")
)
_KINDS = "test_(method|raw_response|streaming_response)"
ABSENT = {
    rf"chat\.test_completions\..*{_KINDS}_(retrieve|update|list|delete)": (
        "chat completions are not stored: there is nothing to look up, change or delete"
    ),
    rf"test_models\..*{_KINDS}_delete": "a served model cannot be deleted by its clients",
}
"""Tests of routes that this server does not have."""
IMPOSSIBLE = "test_method_create_with_all_params"
CHANGES = {
    CHAT: (
        (r"(?s) functions=\[\n.*?\n {12}\],", "", "tools have taken their place"),
        (r"max_(completion_)?tokens=0", r"max_\1tokens=16", "an answer has at least one token"),
        (r'logit_bias=\{"foo": 0\}', 'logit_bias={"1": 0}', '"foo" is no token id'),
        (r"(stream=False,\s+)stream_options=\{[^}]*\},", r"\1", "only a stream has such options"),
    ),
    COMPLETIONS: (
        ("best_of=0", "best_of=1", "the best of none is none"),
        (r'logit_bias=\{"foo": 0\}', 'logit_bias={"1": 0}', '"foo" is no token id'),
        (r"(stream=False,\s+)stream_options=\{[^}]*\},", r"\1", "only a stream has such options"),
        ("echo=True", "echo=False", "a prompt's first token has no score, and null is no number"),
        ('suffix="test."', 'suffix=""', "no served model fills in a middle"),
    ),
}
"""In tests that send every parameter at once: what is impossible, what takes its place, and why."""


def fetch() -> Path:
    """Return the suite of the installed client, which the lock pins.

    Raises
    ------
    ClientError
        It cannot be fetched.
    """
    return fetch_source("openai")


def verify(url: str, suite: Path) -> str:
    """Run the suite and, where it asks for what is impossible, run it again with what is not.

    Raises
    ------
    ClientError
        A test failed that should pass, or passed that is said not to.
    """
    outcomes = _run(url, suite, [CHAT, COMPLETIONS, MODELS_TESTS])
    expected = {name for name in outcomes if _why_not(name)}
    failed = {name for name, problem in outcomes.items() if problem is not None}
    _require(outcomes, failed - expected, "should pass")
    _require(outcomes, expected - failed, "should not pass, and is listed as if")
    with tempfile.TemporaryDirectory() as scratch:
        changed = _change(suite, Path(scratch))
        again = _run(url, changed, [CHAT, COMPLETIONS], "-k", IMPOSSIBLE)
    again_failed = {name for name, problem in again.items() if problem is not None}
    listed = {name for name in again if _is_absent(name)}
    _require(again, again_failed - listed, "should pass with values that are possible")
    num_absent = sum(map(_is_absent, expected))
    return (
        f"{len(outcomes) - len(expected)} of {len(outcomes)} pass as they are,"
        f" {len(again) - len(listed)} with values that are possible;"
        f" {num_absent} ask for routes that are not there"
    )


def _is_absent(name: str) -> bool:
    return any(re.search(pattern, name) for pattern in ABSENT)


def _why_not(name: str) -> bool:
    return _is_absent(name) or IMPOSSIBLE in name


def _require(outcomes: dict[str, str | None], wrong: set[str], what: str) -> None:
    if wrong:
        lines = [f"{name}: {outcomes[name] or 'passed'}" for name in sorted(wrong)]
        raise ClientError(f"{len(wrong)} tests of openai-python {what}:\n" + "\n".join(lines))


def _change(suite: Path, folder: Path) -> Path:
    """Copy the suite's tests, with values that are possible."""
    changed = folder / "changed"
    subprocess.run(["cp", "-r", f"{suite}/.", changed], check=True)
    for name, changes in CHANGES.items():
        path = changed / name
        text = path.read_text()
        for old, new, _ in changes:
            text, count = re.subn(old, new, text)
            if not count:
                raise ClientError(f"{name} has nothing like {old} any more: change CHANGES")
        path.write_text(text)
    return changed


def _run(url: str, suite: Path, files: list[str], *flags: str) -> dict[str, str | None]:
    """Run tests of the suite; the problem of each is returned, None where it passed."""
    with tempfile.TemporaryDirectory() as scratch:
        report = Path(scratch) / "report.xml"
        # the suite's own flags want a plugin that runs tests in parallel
        ours = ["-o", "addopts=", "-p", "no:cacheprovider", "-q", f"--junitxml={report}"]
        done = subprocess.run(
            [sys.executable, "-m", "pytest", *ours, *flags, *files],
            cwd=suite,
            env=os.environ | {"TEST_API_BASE_URL": f"{url}/v1", "PYTHONDONTWRITEBYTECODE": "1"},
            capture_output=True,
            text=True,
            check=False,
        )
        if not report.exists():
            raise ClientError(f"the suite did not run: {done.stdout[-2000:]}{done.stderr[-2000:]}")
        cases = list(ET.parse(report).iter("testcase"))
    outcomes = {f"{case.get('classname')}.{case.get('name')}": _problem(case) for case in cases}
    if len(outcomes) < len(cases) or not outcomes:
        raise ClientError(f"the suite has {len(cases)} tests of {len(outcomes)} names")
    return outcomes


def _problem(case: ET.Element) -> str | None:
    for child in case:
        if child.tag in ("failure", "error", "skipped"):
            return f"{child.tag}: {(child.get('message') or '')[:300]}"
    return None
