"""The engine pod of one accelerator.

It runs under Pod Security "restricted": no root, no privileges, a read-only root with folders for
what is written. Loading a model belongs to the startup probe, so that the liveness probe never
kills an engine that still downloads.
"""

from collections.abc import Mapping
from typing import Any

from msgspec import to_builtins

from quire_operator.planner import names
from quire_operator.planner.engine_flags import (
    CACHE_FOLDER,
    CLAIM_FOLDER,
    HUB_TOKEN_FILE,
    INTERNAL_TOKEN_FILE,
    LIVE_CONFIG_FILE,
    claim_of,
    engine_flags,
)
from quire_operator.planner.settings import PlannerSettings
from quire_operator.resource.accelerator import WITHOUT_GPU, Accelerator
from quire_operator.resource.pod import EnvironmentVariable, Toleration
from quire_operator.resource.reading import InferenceService

Body = dict[str, Any]

USER = 10001
DRAIN_GRACE_SECONDS = 30
"""Beyond the drain, before the kubelet kills: for what an engine does after it."""
STARTUP_SECONDS = 3600
"""How long a model may load and download."""
_PROBE_SECONDS = 5


def pod_template(
    service: InferenceService, accelerator: Accelerator, settings: PlannerSettings
) -> Body:
    """The template of a Deployment's pods."""
    overrides = accelerator.pod
    return {
        "metadata": {
            "labels": dict(overrides.labels)
            | names.labels(service.name, "engine", accelerator.name),
            "annotations": dict(overrides.annotations)
            | {"kubectl.kubernetes.io/default-container": "engine"},
        },
        "spec": _without_empty(
            {
                "automountServiceAccountToken": False,
                "enableServiceLinks": False,
                "terminationGracePeriodSeconds": service.spec.engine.drain_seconds
                + DRAIN_GRACE_SECONDS,
                "securityContext": {
                    "runAsNonRoot": True,
                    "runAsUser": USER,
                    "runAsGroup": USER,
                    "fsGroup": USER,
                    "fsGroupChangePolicy": "OnRootMismatch",
                    "seccompProfile": {"type": "RuntimeDefault"},
                },
                "containers": [_container(service, accelerator, settings)],
                "volumes": _volumes(service, accelerator),
                "affinity": _affinity(accelerator),
                "nodeSelector": dict(overrides.node_selector),
                "tolerations": _tolerations(accelerator),
                "topologySpreadConstraints": [_spread(service.name, accelerator.name)],
                "imagePullSecrets": [{"name": one.name} for one in overrides.image_pull_secrets],
                "runtimeClassName": overrides.runtime_class_name,
                "priorityClassName": overrides.priority_class_name,
                "schedulerName": overrides.scheduler_name,
            }
        ),
    }


def image_of(accelerator: Accelerator, settings: PlannerSettings) -> str:
    """Image of one accelerator's engines."""
    if accelerator.pod.image:
        return accelerator.pod.image
    needs_no_gpu = accelerator.name in WITHOUT_GPU
    return (settings.cpu_engine_image if needs_no_gpu else None) or settings.engine_image


def _container(
    service: InferenceService, accelerator: Accelerator, settings: PlannerSettings
) -> Body:
    return {
        "name": "engine",
        "image": image_of(accelerator, settings),
        "imagePullPolicy": settings.image_pull_policy,
        "args": engine_flags(service, accelerator),
        "ports": [{"name": "http", "containerPort": names.ENGINE_PORT, "protocol": "TCP"}],
        "env": [
            {"name": "QUIRE_CACHE", "value": CACHE_FOLDER},
            {"name": "HOME", "value": "/tmp"},  # noqa: S108 - a volume of the pod's own
            *_pin(service),
            *(_variable(one) for one in accelerator.pod.env),
        ],
        "resources": _resources(accelerator),
        "volumeMounts": _mounts(service, accelerator),
        "startupProbe": _probe("/readyz", _PROBE_SECONDS, STARTUP_SECONDS // _PROBE_SECONDS),
        "readinessProbe": _probe("/readyz", 2, 2),
        "livenessProbe": _probe("/healthz", 10, 6),
        "terminationMessagePolicy": "FallbackToLogsOnError",
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
    }


def _pin(service: InferenceService) -> list[Body]:
    """The commit to read, once one is known: read when a container starts, so it may come later."""
    if not service.spec.model.source.startswith("hf://"):
        return []
    place = {
        "name": names.live_config_name(service.name),
        "key": names.PIN_KEY,
        "optional": True,
    }
    return [{"name": "HF_REVISION_PIN", "valueFrom": {"configMapKeyRef": place}}]


def _probe(path: str, period_seconds: int, failures: int) -> Body:
    return {
        "httpGet": {"path": path, "port": "http"},
        "periodSeconds": period_seconds,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _resources(accelerator: Accelerator) -> Body:
    wanted = accelerator.pod.resources
    gpus = {} if accelerator.name in WITHOUT_GPU else {names.GPU_RESOURCE: str(accelerator.count)}
    amounts = {
        "requests": {name: str(amount) for name, amount in wanted.requests.items()} | gpus,
        "limits": {name: str(amount) for name, amount in wanted.limits.items()} | gpus,
    }
    return {name: several for name, several in amounts.items() if several}


def _variable(variable: EnvironmentVariable) -> Body:
    if variable.value_from is not None:
        return {"name": variable.name, "valueFrom": to_builtins(variable.value_from)}
    return {"name": variable.name, "value": variable.value or ""}


def _mounts(service: InferenceService, accelerator: Accelerator) -> list[Body]:
    mounts = [
        _mount("tmp", "/tmp"),  # noqa: S108 - a volume of the pod's own
        _mount("cache", CACHE_FOLDER),
        _mount("live-config", LIVE_CONFIG_FILE.rsplit("/", 1)[0], is_read_only=True),
        _mount("internal-token", INTERNAL_TOKEN_FILE.rsplit("/", 1)[0], is_read_only=True),
    ]
    if service.spec.model.token_secret_ref:
        mounts.append(_mount("hub-token", HUB_TOKEN_FILE.rsplit("/", 1)[0], is_read_only=True))
    if claim_of(service.spec.model.source):
        mounts.append(_mount("model", CLAIM_FOLDER, is_read_only=True))
    if accelerator.count > 1:
        mounts.append(_mount("shm", "/dev/shm"))  # noqa: S108 - memory that GPUs' processes share
    return mounts


def _mount(name: str, path: str, *, is_read_only: bool = False) -> Body:
    return {"name": name, "mountPath": path} | ({"readOnly": True} if is_read_only else {})


def _volumes(service: InferenceService, accelerator: Accelerator) -> list[Body]:
    model = service.spec.model
    cache: Body = {"name": "cache", "emptyDir": {}}
    if model.cache:
        cache = {"name": "cache", "persistentVolumeClaim": {"claimName": model.cache.pvc}}
    volumes: list[Body] = [
        {"name": "tmp", "emptyDir": {}},
        cache,
        {"name": "live-config", "configMap": {"name": names.live_config_name(service.name)}},
        {
            "name": "internal-token",
            "secret": {"secretName": names.internal_token_name(service.name)},
        },
    ]
    if token := model.token_secret_ref:
        items = [{"key": token.key, "path": "token"}]
        volumes.append({"name": "hub-token", "secret": {"secretName": token.name, "items": items}})
    if claim := claim_of(model.source):
        source = {"claimName": claim, "readOnly": True}
        volumes.append({"name": "model", "persistentVolumeClaim": source})
    if accelerator.count > 1:
        volumes.append({"name": "shm", "emptyDir": {"medium": "Memory"}})
    return volumes


def _affinity(accelerator: Accelerator) -> Body:
    if not accelerator.products:
        return {}
    wanted = {
        "key": names.PRODUCT_LABEL,
        "operator": "In",
        "values": list(accelerator.products),
    }
    terms = {"nodeSelectorTerms": [{"matchExpressions": [wanted]}]}
    return {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}


def products_of(template: Mapping[str, Any]) -> tuple[str, ...]:
    """GPUs that a pod template may run on; none where it needs none, or somebody changed it."""
    try:
        node = template["spec"]["affinity"]["nodeAffinity"]
        terms = node["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]
        found = [
            product
            for term in terms
            for one in term["matchExpressions"]
            if one["key"] == names.PRODUCT_LABEL
            for product in one["values"]
            if isinstance(product, str)
        ]
    except (KeyError, TypeError):
        return ()
    return tuple(found)


def _tolerations(accelerator: Accelerator) -> list[Body]:
    gpu = {"key": names.GPU_RESOURCE, "operator": "Exists", "effect": "NoSchedule"}
    own = [] if accelerator.name in WITHOUT_GPU else [gpu]
    return [*own, *map(_toleration, accelerator.pod.tolerations)]


def _toleration(toleration: Toleration) -> Body:
    return _without_empty(
        {
            "key": toleration.key,
            "operator": toleration.operator,
            "value": toleration.value,
            "effect": toleration.effect,
            "tolerationSeconds": toleration.toleration_seconds,
        }
    )


def _spread(service: str, accelerator: str) -> Body:
    return {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": names.engine_selector(service, accelerator)},
    }


def _without_empty(body: Body) -> Body:
    return {name: value for name, value in body.items() if value not in (None, "", {}, [])}
