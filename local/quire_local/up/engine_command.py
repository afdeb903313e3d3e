"""From the pod that the planner makes to the command line of a process.

The flags are the pod's. Only what differs between a pod and a process is put in its place: paths of
mounted files, the address, how logs look, and the GPU, which is simulated.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from quire_engine.profiles.shapes import SHAPES
from quire_local.up.inventory import Claim, gpu_of
from quire_local.up.resource_file import Key
from quire_operator.planner.engine_flags import (
    CLAIM_FOLDER,
    HUB_TOKEN_FILE,
    INTERNAL_TOKEN_FILE,
    LIVE_CONFIG_FILE,
)
from quire_operator.planner.memory import shape_of_source
from quire_operator.planner.names import ENGINE_PORT, GPU_RESOURCE

Template = Mapping[str, Any]

HOST = "127.0.0.1"
_POD_VARIABLES = frozenset(("HOME", "QUIRE_CACHE"))
"""Those are folders of the pod."""


class CommandError(Exception):
    """There is no such process; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class Surroundings:
    """What a pod would have mounted."""

    live_config: Path
    internal_tokens: Path
    hub_token: Path
    claims: Mapping[str, Path]
    """Folders in place of PersistentVolumeClaims."""
    secrets: Mapping[Key, Mapping[str, bytes]]
    config_maps: Mapping[str, Mapping[str, str]]
    """Those that the planner makes for the service."""
    namespace: str


@dataclass(frozen=True, kw_only=True)
class EngineCommand:
    """What is started."""

    flags: Sequence[str]
    variables: Mapping[str, str] = field(default_factory=dict)


def claim_of_template(template: Template) -> Claim:
    """The GPUs that a pod asks for."""
    spec = template["spec"]
    limits = spec["containers"][0].get("resources", {}).get("limits", {})
    required = spec.get("affinity", {}).get("nodeAffinity", {})
    terms = required.get("requiredDuringSchedulingIgnoredDuringExecution", {})
    products = [
        value
        for term in terms.get("nodeSelectorTerms", [])
        for expression in term.get("matchExpressions", [])
        for value in expression.get("values", [])
    ]
    count = int(limits.get(GPU_RESOURCE, 0))
    return Claim(products=tuple(products) if count else (), count=count)


def command_of(template: Template, around: Surroundings, *, node: str, port: int) -> EngineCommand:
    """Make the command line of one engine.

    Parameters
    ----------
    node
        Where it was placed; its GPU is simulated.

    Raises
    ------
    CommandError
        Something that the pod names is not there.
    """
    container = template["spec"]["containers"][0]
    flags = [_local(flag, around, port) for flag in container["args"]]
    claim = _claim_name(template)
    if claim is not None:
        flags = [_in_claim(flag, claim, around) for flag in flags]
    gpu = gpu_of(node)
    if gpu is not None:
        flags = _simulated(flags, gpu)
    return EngineCommand(flags=flags, variables=_variables(container.get("env", []), around))


def _local(flag: str, around: Surroundings, port: int) -> str:
    """A pod's flag with what a process has in its place."""
    replaced = {
        "--host=0.0.0.0": f"--host={HOST}",
        f"--port={ENGINE_PORT}": f"--port={port}",
        f"--config={LIVE_CONFIG_FILE}": f"--config={around.live_config}",
        f"--internal-token-file={INTERNAL_TOKEN_FILE}": (
            f"--internal-token-file={around.internal_tokens}"
        ),
        f"--hf-token-file={HUB_TOKEN_FILE}": f"--hf-token-file={around.hub_token}",
        "--log-format=json": "--log-format=text",
    }
    return replaced.get(flag, flag)


def _claim_name(template: Template) -> str | None:
    for volume in template["spec"].get("volumes", []):
        if volume["name"] == "model" and "persistentVolumeClaim" in volume:
            name: str = volume["persistentVolumeClaim"]["claimName"]
            return name
    return None


def _in_claim(flag: str, claim: str, around: Surroundings) -> str:
    start = f"--source={CLAIM_FOLDER}/"
    if not flag.startswith(start):
        return flag
    if claim not in around.claims:
        raise CommandError(
            f"pvc://{claim} is a claim of a cluster: say which folder it is here by"
            f" --claim {claim}=FOLDER"
        )
    return f"--source={around.claims[claim] / flag.removeprefix(start)}"


def _simulated(flags: Sequence[str], gpu: str) -> list[str]:
    """Flags of an engine that takes the time which this GPU would."""
    if any(flag.startswith("--simulate=") for flag in flags):
        return list(flags)
    source = next((one for one in flags if one.startswith("--source=")), "").partition("=")[2]
    shape = shape_of_source(source)
    if shape is None:
        raise CommandError(
            f"quire does not know the size of {source}, so that it cannot be simulated: give the"
            f" accelerator simulate: {{gpu: {gpu}, modelShape: ...}} with one of"
            f" {', '.join(SHAPES)}"
        )
    kept = [flag for flag in flags if not flag.startswith("--device=")]
    return [*kept, f"--simulate={gpu}", f"--model-shape={shape.name}"]


def _variables(several: Sequence[Mapping[str, Any]], around: Surroundings) -> dict[str, str]:
    found: dict[str, str] = {}
    for one in several:
        value = one["value"] if "value" in one else _referred(one, around)
        if value is not None and one["name"] not in _POD_VARIABLES:
            found[one["name"]] = value
    return found


def _referred(variable: Mapping[str, Any], around: Surroundings) -> str | None:
    """The value that a variable is taken from; None if it may be absent, and is."""
    name, source = variable["name"], variable["valueFrom"]
    for reference_name, kind in (("secretKeyRef", "Secret"), ("configMapKeyRef", "ConfigMap")):
        reference = source.get(reference_name)
        if not isinstance(reference, Mapping):
            continue
        place, key = str(reference.get("name")), str(reference.get("key"))
        if kind == "Secret":
            values = around.secrets.get((around.namespace, place), {})
            found = values[key].decode(errors="replace") if key in values else None
        else:
            found = around.config_maps.get(place, {}).get(key)
        if found is None and not reference.get("optional", False):
            raise CommandError(f"variable {name}: there is no {kind} {place} with {key}")
        return found
    raise CommandError(f"variable {name}: only secretKeyRef can be used without a cluster")
