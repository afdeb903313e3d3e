"""YAML and JSON on the pages is taken by its schema and rules: the resource's or the chart's."""

import json
import re
import shutil
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest
import yaml

from quire_gateway.routing.document import ApiKey
from quire_local.simulate.services_file import read_services
from quire_local.up.resource_file import read_text
from quire_operator.resource.crd import API_VERSION, KIND, crd
from tests.api.promtool import find_promtool
from tests.docs.pages import ROOT, Block, blocks_in, english_pages, prose_of

VALUES_SCHEMA = json.loads((ROOT / "charts/quire/values.schema.json").read_text("utf-8"))
_SCHEMA = crd()["spec"]["versions"][0]["schema"]["openAPIV3Schema"]["properties"]["spec"]
_HERE_DOCUMENT = re.compile(r"<<'END'[^\n]*\n(apiVersion:.*?)^END$", re.DOTALL | re.MULTILINE)
_PATH = re.compile(r"`([a-z][A-Za-z]*(?:\[\])?(?:\.[A-Za-z]+(?:\[\])?)+)(?:: [^`]*)?`")
_GENERAL = ("design/", "reference/")
"""Pages of code, whose names look like fields, and generated ones."""
_LEAST: dict[str, Any] = {
    "model": {"source": "hf://acme/model@main"},
    "accelerators": [{"name": "l4", "products": ["NVIDIA-L4"]}],
}
"""What a part of a spec is put into."""


def samples() -> Iterator[Block]:
    yield from blocks_in("yaml")
    for block in blocks_in("sh"):
        for found in _HERE_DOCUMENT.findall(block.text):
            yield Block(block.page, block.number, "yaml", found)


@pytest.mark.parametrize("block", list(samples()), ids=str)
def test_each_sample_is_taken(block: Block, tmp_path: Path) -> None:
    if block.text.startswith("# values.yaml\n"):
        jsonschema.validate(yaml.safe_load(block.text), VALUES_SCHEMA)
    elif block.text.startswith("- {name: "):
        services = tmp_path / "services.yaml"
        services.write_text(block.text)
        assert len(read_services(services)) == block.text.count("\n- ") + 1
    elif block.text.startswith("# prometheus.yml\n"):
        check_prometheus(block.text, tmp_path)
    else:
        read_text(as_resource(block.text).encode(), str(block))


def check_prometheus(text: str, folder: Path) -> None:
    """By Prometheus' own checker, but for the pods: Debian's does not know Kubernetes."""
    found = find_promtool()
    if isinstance(found, str):
        pytest.skip(found)
    config = yaml.safe_load(text)
    for job in config["scrape_configs"]:
        assert job.pop("kubernetes_sd_configs") == [{"role": "pod"}]
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    shutil.copy(ROOT / "charts/quire/files/alerts.yaml", folder)
    ran = subprocess.run(
        [found, "check", "config", "prometheus.yml"], cwd=folder, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def as_resource(text: str) -> str:
    """A whole resource; a part of a spec is put into one."""
    if text.startswith("apiVersion:"):
        return text
    part = yaml.safe_load(textwrap.dedent(text))
    spec = _LEAST | part.get("spec", part)
    head = {"apiVersion": API_VERSION, "kind": KIND, "metadata": {"name": "sample"}}
    return yaml.safe_dump(head | {"spec": spec})


def test_a_sample_with_a_field_that_there_is_not_would_be_found() -> None:
    with pytest.raises(Exception, match="unknown field"):
        read_text(as_resource("spec:\n  scaling: {minReplica: 1}\n").encode(), "sample")
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate({"gateway": {"replica": 1}}, VALUES_SCHEMA)


@pytest.mark.parametrize("block", blocks_in("json"), ids=str)
def test_each_part_of_a_routing_file_is_taken(block: Block) -> None:
    (name, value), *others = json.loads(f"{{{block.text}}}").items()
    assert (name, others) == ("api_keys", [])
    assert msgspec.convert(value, list[ApiKey])


@pytest.mark.parametrize("page", [one for one in english_pages() if not one.startswith(_GENERAL)])
def test_each_field_that_is_named_is_one_of_the_resource_or_of_the_chart(page: str) -> None:
    is_about_others = page.startswith("moving/")
    for line in prose_of(page).splitlines():
        # of a table about something else, the left column has that one's fields
        ours = line.partition(" | ")[2] if is_about_others and line.startswith("|") else line
        for path in _PATH.findall(ours):
            names = path.removeprefix("spec.").split(".")
            roots = [one for one in (_SCHEMA, VALUES_SCHEMA) if names[0] in fields(one)]
            roots += [_SCHEMA] if names[0].endswith("[]") else []
            if roots and names[0] not in _OTHERS:
                assert any(is_known(names, root) for root in roots), f"there is no {path}"


_OTHERS = ("image",)
"""Words that begin paths of other things, too."""


def fields(schema: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = schema.get("properties", {})
    return found


def is_known(names: list[str], schema: dict[str, Any]) -> bool:
    for name in names:
        if "properties" not in schema:
            return schema.get("type") == "object"  # a map, or an object of Kubernetes
        if (found := fields(schema).get(name.removesuffix("[]"))) is None:
            return False
        schema = found["items"] if name.endswith("[]") else found
    return True
