"""The CRD is made from the types, is structural, and has a bound on everything."""

from collections.abc import Iterator
from typing import Any

import pytest

from quire_operator.resource.crd import crd
from quire_operator.resource.reading import InvalidResourceError, read

SMALLEST: dict[str, Any] = {
    "apiVersion": "serving.quire.dev/v1alpha1",
    "kind": "InferenceService",
    "metadata": {"namespace": "models", "name": "chat", "uid": "1", "generation": 3},
    "spec": {"model": {"source": "hf://Qwen/Qwen3-8B@main"}, "accelerators": [{"name": "cpu"}]},
}


def schemas() -> Iterator[tuple[str, dict[str, Any]]]:
    """Each schema in the CRD with its path."""
    root = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    for name in ("spec", "status"):
        yield from walk(name, root["properties"][name])


def walk(path: str, schema: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, schema
    for name, below in schema.get("properties", {}).items():
        yield from walk(f"{path}.{name}", below)
    if "items" in schema:
        yield from walk(f"{path}[]", schema["items"])
    if "additionalProperties" in schema:
        yield from walk(f"{path}{{}}", schema["additionalProperties"])


def test_every_field_says_what_it_is() -> None:
    silent = [
        path
        for path, schema in schemas()
        if not path.endswith(("[]", "{}")) and len(schema.get("description", "")) < 5
    ]
    assert silent == []


def test_everything_is_bounded_so_that_rules_can_be_paid_for() -> None:
    bounds = {"string": "maxLength", "array": "maxItems"}
    boundless = [
        path
        for path, schema in schemas()
        if schema.get("type") in bounds
        and bounds[schema["type"]] not in schema
        and "enum" not in schema
    ]
    maps = [
        path
        for path, schema in schemas()
        if "additionalProperties" in schema and "maxProperties" not in schema
    ]
    assert boundless + maps == []


def test_it_is_structural() -> None:
    for path, schema in schemas():
        assert "$ref" not in schema, path
        assert schema.get("type") != "null", path
        assert "type" in schema or schema.get("x-kubernetes-int-or-string"), path
        if "default" in schema:
            assert "required" not in schema or schema["default"] != {}, path


def test_each_rule_says_what_to_do_in_a_sentence_that_follows_the_path() -> None:
    entries = [
        (path, entry)
        for path, schema in schemas()
        for entry in schema.get("x-kubernetes-validations", [])
    ]
    assert len(entries) > 15
    for path, entry in entries:
        assert 15 < len(entry["message"]) <= 400, (path, entry)
        assert not entry["message"].endswith("."), (path, entry)
        assert "\n" not in entry["rule"], (path, entry)


def test_what_a_user_leaves_out_has_the_crds_defaults() -> None:
    service = read(SMALLEST)
    defaults = {
        path: schema["default"]
        for path, schema in schemas()
        if path.startswith("spec.") and not isinstance(schema.get("default", {}), dict | list)
    }

    assert defaults["spec.memoryPressure.admission"] == service.spec.memory_pressure.admission
    assert defaults["spec.engine.maxNumSeqs"] == service.spec.engine.max_num_seqs
    assert defaults["spec.scaling.mode"] == service.spec.scaling.mode == "Auto"
    assert defaults["spec.accelerators[].count"] == service.spec.accelerators[0].count
    assert service.served_name == "chat"
    assert service.key == ("models", "chat")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "Service"}, "this is serving.quire.dev/v1alpha1 Service"),
        ({"spec": {"accelerators": [{"name": "cpu"}]}}, "missing required field `model`"),
        (
            {"spec": SMALLEST["spec"] | {"engine": {"blockSize": 17}}},
            "Invalid enum value 17 - at `spec.engine.blockSize`",
        ),
        ({"status": {"conditions": 1}}, "at `status.conditions`"),
    ],
)
def test_what_cannot_be_read_says_where(change: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidResourceError) as caught:
        read(SMALLEST | change)

    assert message in str(caught.value)
