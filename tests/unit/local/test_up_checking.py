"""Resources from a file are held to the rules that an API server holds them to."""

import json
from typing import Any

import pytest
import yaml

from quire_local.up.resource_file import FileError, read_text
from tests.cluster.services import SMALL, Body, service
from tests.cluster.test_crd import FULL, REFUSED


def read(*bodies: Any, old: Any = None) -> Any:
    return read_text(yaml.safe_dump_all(bodies).encode(), "services.yaml", old)


def problem(*bodies: Any, old: Any = None) -> str:
    with pytest.raises(FileError) as refused:
        read(*bodies, old=old)
    return str(refused.value)


@pytest.mark.parametrize(
    ("field", "spec", "message"),
    REFUSED,
    ids=[f"{field}-{index}" for index, (field, _, _) in enumerate(REFUSED)],
)
def test_what_an_api_server_refuses_is_refused_with_its_field(
    field: str, spec: Body, message: str
) -> None:
    told = problem(service(**spec))
    assert told.startswith("services.yaml, document 1 (InferenceService chat): ")
    written_by_us = not message.startswith(("should", "supported", "less than", "greater than"))
    if written_by_us:
        # an API server has the value between the field and these words
        assert message.strip().rpartition('": ')[2] in told
    if field != "pod":
        assert field.removeprefix("spec") in told


def test_what_an_api_server_takes_is_taken() -> None:
    (full,) = read(service(**FULL)).services.values()
    assert full.spec.engine.max_num_seqs == FULL["engine"]["maxNumSeqs"]
    (small,) = read(SMALL).services.values()
    assert small.key == ("default", "chat")


def test_a_rule_about_a_change_is_asked_when_a_file_is_edited() -> None:
    before = read(SMALL)
    told = problem(service(replicas=3), old=before)
    assert "spec.replicas: replicas is quire's to decide while scaling.mode is Auto" in told
    external = read(service(scaling={"mode": "External"}), old=before)
    assert read(service(scaling={"mode": "External"}, replicas=3), old=external)


def test_a_misspelt_field_is_named_with_the_one_that_is_meant() -> None:
    told = problem(service(memoryPresure={}))
    assert 'unknown field "spec.memoryPresure": did you mean memoryPressure?' in told


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (b"", "has no InferenceService"),
        (b"a: [", "is no YAML"),
        (b"\xff\xfe\xff", "is no YAML"),
        (b"- 1", "document 1 is no object"),
        (b"apiVersion: v1\nkind: Pod", "document 1 is v1 Pod: only serving.quire.dev/v1alpha1"),
        (b"apiVersion: v1\nkind: PersistentVolumeClaim", "say --claim CLAIM=FOLDER"),
        (b"[" * 5000, "is no YAML"),
    ],
)
def test_what_is_no_resource_is_named(text: bytes, message: str) -> None:
    with pytest.raises(FileError, match=message):
        read_text(text, "services.yaml")


def test_names_must_be_names() -> None:
    assert "metadata.name is missing" in problem({**SMALL, "metadata": {}})
    assert "'../x'" in problem(service(namespace="../x"))
    assert "at most 40 characters" in problem(service("a" * 41))
    assert "spec is missing" in problem({**SMALL, "spec": None})


def test_services_share_an_address_so_each_model_name_is_one_services() -> None:
    other = service("other", model={"source": "hf://a/b", "aliases": ["chat"]})
    assert "chat and other both serve a model named chat" in problem(SMALL, other)
    assert "is there already" in problem(SMALL, SMALL)


def test_secrets_are_read_as_they_are_applied() -> None:
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "keys"}}
    found = read(SMALL, secret | {"data": {"a": "aGk="}, "stringData": {"b": "ho"}})
    assert found.secrets == {("default", "keys"): {"a": b"hi", "b": b"ho"}}
    told = problem(SMALL, secret | {"data": {"a": "not base64!"}})
    assert "data.a is not base64; text as it is belongs into stringData" in told
    assert "not base64!" not in told
    assert "put it into quotes" in problem(SMALL, secret | {"stringData": {"a": 5}})


def test_every_rule_of_the_schema_can_be_asked() -> None:
    """A rule that this CEL does not know would fail on the first resource that has its field."""
    from quire_local.up.checking import _program
    from quire_operator.resource.crd import crd

    rules = [json.loads(f'"{text}"') for text in _rules_in(json.dumps(crd()))]
    assert len(rules) > 20
    for rule in rules:
        assert _program(rule)


def _rules_in(text: str) -> list[str]:
    import re

    return re.findall(r'"rule": "((?:[^"\\]|\\.)*)"', text)
