"""The samples as a user meets them: each has a plan without anything wrong, and docs name it."""

import base64
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml

from quire_operator.planner.api_keys import read_keys
from quire_operator.planner.observed import Observed
from quire_operator.planner.plan import plan
from quire_operator.resource.reading import read
from tests.unit.control.builders import SETTINGS, gateways

ROOT = Path(__file__).resolve().parents[3]
FILES = sorted((ROOT / "manifests/samples").glob("*.yaml"))


def documents(file: Path, kind: str) -> list[dict[str, Any]]:
    return [one for one in yaml.safe_load_all(file.read_text()) if one["kind"] == kind]


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_has_a_plan_without_anything_wrong(file: Path) -> None:
    (body,) = documents(file, "InferenceService")
    observed = Observed(service=read(body), root_secret=b"s" * 32, gateways=gateways("10.0.0.1"))
    made = plan(observed, SETTINGS, datetime(2026, 1, 1, tzinfo=UTC))
    conditions = {one.type: one for one in made.status.conditions}

    assert conditions["Degraded"].status == "False", conditions["Degraded"].message
    assert made.status.desired_replicas == body["spec"].get("replicas", 1)
    assert sum(one["kind"] == "Deployment" for one in made.objects) == len(
        body["spec"]["accelerators"]
    )


def test_all_may_be_applied_at_once() -> None:
    """No two have one name of the resource, nor one model at one host."""
    services = [body for file in FILES for body in documents(file, "InferenceService")]
    names = [body["metadata"]["name"] for body in services]
    assert len(set(names)) == len(names)
    ways = [
        (body["spec"]["ingress"]["host"], read(body).served_name)
        for body in services
        if "ingress" in body["spec"]
    ]
    assert len(ways) > 1
    assert len(set(ways)) == len(ways)


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_is_named_in_the_docs(file: Path) -> None:
    assert f"manifests/samples/{file.name}" in (ROOT / "docs/operator.md").read_text()


def test_the_keys_of_the_sample_are_keys() -> None:
    (secret,) = documents(ROOT / "manifests/samples/api-keys.yaml", "Secret")
    data = {
        name: base64.b64encode(text.encode()).decode()
        for name, text in secret["stringData"].items()
    }
    found = read_keys(data)

    assert [one.name for one in found.keys] == ["team-a", "team-b", "team-c"]
    assert found.problems == ()
