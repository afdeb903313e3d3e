"""What one setting forbids another: checks over a whole configuration."""

import shlex

from quire_engine.config.engine import EngineConfig
from quire_engine.config.values import split
from quire_engine.errors import ConfigError
from quire_engine.profiles.files import is_profile_file, read_profile
from quire_engine.profiles.gpus import find_gpu
from quire_engine.profiles.shapes import find_shape


def check(config: EngineConfig) -> None:
    """Refuse settings that contradict each other.

    Raises
    ------
    ConfigError
        Two settings cannot both hold, or one names what there is not; the message says which to
        change.
    """
    _check_command(config)
    _check_cache(config)
    _check_simulation(config)
    _check_steps(config)
    _check_ceilings(config)
    _check_drain(config)
    _check_access(config)


def _check_command(config: EngineConfig) -> None:
    command = config.executor.command
    if command is None:
        return
    if config.executor.simulate is not None:
        raise ConfigError("command and simulate both stand for the model: remove one of them")
    try:
        words = shlex.split(command)
    except ValueError as error:
        raise ConfigError(f"command cannot be read as a shell would: {error}") from error
    if not words or not words[0]:
        raise ConfigError("command names no program")
    if config.server.api_workers > 1:
        raise ConfigError(
            f"api_workers is {config.server.api_workers}, but commands are run by the one process"
            " that answers HTTP: leave it at 1, or remove command"
        )


def _check_cache(config: EngineConfig) -> None:
    wanted, dtype = config.cache.kv_cache_dtype, config.model.dtype
    if wanted not in ("auto", dtype):
        raise ConfigError(
            f"kv_cache_dtype is {wanted}, but dtype is {dtype}: the KV cache has the model's type; "
            f"set dtype to {wanted} too, or leave kv_cache_dtype out"
        )


def _check_simulation(config: EngineConfig) -> None:
    executor = config.executor
    if executor.simulate is None:
        for name in ("model_shape", "simulated_step_seconds"):
            if getattr(executor, name) is not None:
                raise ConfigError(f"{name} is only for simulated engines: set simulate too")
        return
    if executor.device != "auto":
        raise ConfigError(
            f"device is {executor.device}, but a simulated engine computes on none: "
            "remove device or simulate"
        )
    if is_profile_file(executor.simulate):
        if executor.model_shape is not None:
            raise ConfigError(
                f"simulate is the profile {executor.simulate}, which has its model: "
                "remove model_shape"
            )
        read_profile(executor.simulate)
        return
    if executor.model_shape is None:
        raise ConfigError(
            f'simulate is "{executor.simulate}", but model_shape is not set: '
            "say which model to simulate, such as llama3-8b (--model-shape)"
        )
    find_gpu(executor.simulate)
    find_shape(executor.model_shape)


def _check_steps(config: EngineConfig) -> None:
    scheduler = config.scheduler
    if scheduler.max_num_batched_tokens < scheduler.max_num_seqs:
        raise ConfigError(
            f"max_num_batched_tokens ({scheduler.max_num_batched_tokens}) is less than "
            f"max_num_seqs ({scheduler.max_num_seqs}): one step could not decode a token for "
            "every running request; raise the first or lower the second"
        )


def _check_ceilings(config: EngineConfig) -> None:
    admission = config.admission
    if admission.background_ceiling > admission.admission_ceiling:
        raise ConfigError(
            f"background_ceiling ({admission.background_ceiling:g}) is above admission_ceiling "
            f"({admission.admission_ceiling:g}): background requests must not be let in where "
            "interactive ones are refused; lower the first"
        )


def _check_drain(config: EngineConfig) -> None:
    server = config.server
    if server.drain_grace_seconds > server.drain_seconds:
        raise ConfigError(
            f"drain_grace_seconds ({server.drain_grace_seconds:g}) is more than drain_seconds "
            f"({server.drain_seconds:g}), of which it is a part: lower the first"
        )


def _check_access(config: EngineConfig) -> None:
    if config.access.api_key is not None and not split(config.access.api_key):
        raise ConfigError("api_key has no key in it: give one, or leave it out to need none")
