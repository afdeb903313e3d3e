"""From a spec to what its engines are started with.

Two kinds, kept apart: flags, which are a part of the pod, so that a change restarts engines; and
limits, which are in a file that a new engine reads and that running ones are told over HTTP, so
that moving a threshold restarts nothing.
"""

from posixpath import normpath
from typing import Any

from quire_engine.protocol.messages import Thresholds
from quire_operator.planner.durations import seconds
from quire_operator.planner.names import ENGINE_PORT
from quire_operator.resource.accelerator import WITHOUT_GPU, Accelerator
from quire_operator.resource.reading import InferenceService

LIVE_CONFIG_FILE = "/etc/quire/live/config.json"
INTERNAL_TOKEN_FILE = "/etc/quire/internal/tokens"  # noqa: S105 - a path
HUB_TOKEN_FILE = "/etc/quire/hub/token"  # noqa: S105 - a path
CLAIM_FOLDER = "/models"
CACHE_FOLDER = "/cache"


def engine_flags(service: InferenceService, accelerator: Accelerator) -> list[str]:
    """Flags of one accelerator's engines, as --name=value, the user's own last."""
    model, engine = service.spec.model, service.spec.engine
    flags: dict[str, object] = {
        "source": model_path(model.source),
        "served-model-name": service.served_name,
        "model-aliases": ",".join(model.aliases) or None,
        "sha256": model.sha256,
        "hf-token-file": HUB_TOKEN_FILE if model.token_secret_ref else None,
        "max-model-len": model.max_model_len,
        "quantization": None if model.quantization == "none" else model.quantization,
        "block-size": engine.block_size,
        "max-num-seqs": engine.max_num_seqs,
        "max-num-batched-tokens": engine.max_num_batched_tokens,
        "dtype": None if engine.dtype == "auto" else engine.dtype,
        "kv-cache-dtype": None if engine.kv_cache_dtype == "auto" else engine.kv_cache_dtype,
        "drain-seconds": engine.drain_seconds,
        "host": "0.0.0.0",  # noqa: S104 - a pod is reached by its address
        "port": ENGINE_PORT,
        "config": LIVE_CONFIG_FILE,
        "internal-token-file": INTERNAL_TOKEN_FILE,
        "log-format": "json",
    }
    if accelerator.simulate:
        flags["simulate"] = accelerator.simulate.gpu
        flags["model-shape"] = accelerator.simulate.model_shape
    else:
        flags["device"] = "cpu" if accelerator.name in WITHOUT_GPU else "cuda"
    given = [f"--{name}={value}" for name, value in flags.items() if value is not None]
    return [*given, *engine.extra_args]


def model_path(source: str) -> str:
    """A model's source as its engine sees it: a claim is mounted into the pod.

    It stays in the claim, even if an older kind let `..` pass.
    """
    if not source.startswith("pvc://"):
        return source
    path = source.removeprefix("pvc://").split("/", 1)[1]
    return f"{CLAIM_FOLDER}{normpath(f'/{path}')}" if ".." in path else f"{CLAIM_FOLDER}/{path}"


def claim_of(source: str) -> str | None:
    """The PersistentVolumeClaim that a model is in, if it is in one."""
    return source.removeprefix("pvc://").split("/")[0] if source.startswith("pvc://") else None


def thresholds(service: InferenceService) -> Thresholds:
    """The limits that engines of this service keep, as they are told while running."""
    pressure, admission, slo = (
        service.spec.memory_pressure,
        service.spec.admission,
        service.spec.scaling.slo,
    )
    return Thresholds(
        admission=pressure.admission / 100,
        background=pressure.background_limit / 100,
        slo_time_to_first_token_seconds=_seconds(slo.time_to_first_token),
        slo_time_per_output_token_seconds=_seconds(slo.time_per_output_token),
        max_queue_seconds=max(float(admission.max_queue_seconds), 0.001),
        max_waiting_requests=max(admission.max_queued_requests, 1),
    )


def live_config(service: InferenceService) -> dict[str, Any]:
    """The same limits as a configuration file that a new engine reads."""
    limits = thresholds(service)
    values = {
        "admission_ceiling": limits.admission,
        "background_ceiling": limits.background,
        "slo_time_to_first_token": limits.slo_time_to_first_token_seconds,
        "slo_time_per_output_token": limits.slo_time_per_output_token_seconds,
        "max_queue_seconds": limits.max_queue_seconds,
    }
    return {
        "admission": {name: value for name, value in values.items() if value is not None},
        "scheduler": {"max_waiting_requests": limits.max_waiting_requests},
    }


def _seconds(duration: str | None) -> float | None:
    return seconds(duration) if duration else None
