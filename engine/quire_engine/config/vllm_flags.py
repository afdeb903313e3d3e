"""vLLM's flags under their own names, so that its command lines work as they are.

    the same name     --max-model-len, --dtype, ...   a setting of quire; not listed here
    another name      SYNONYMS                        the value goes to a setting
    done anyway       DONE_ANYWAY                     taken, without effect, if it asks for what
                                                      is done anyway; else refused
    not here          NOT_HERE                        refused with what to do instead

MODEL may be the name of a repository on the hub, as vLLM takes it.
"""

import argparse
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from quire_engine.errors import ConfigError

Flags = dict[str, str | bool]

_REPOSITORY = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_ONE_GPU = (
    "an engine uses one GPU: take a smaller or quantized model, or start one engine for each GPU"
    " with CUDA_VISIBLE_DEVICES"
)


@dataclass(frozen=True, kw_only=True)
class Synonym:
    """A flag that quire has under another name."""

    flag: str
    setting: str
    short: str | None = None
    is_switch: bool = False
    is_opposite: bool = False
    """Of a switch: given, it turns the setting off."""
    words: Mapping[str, str] = field(default_factory=dict)
    """Values that quire calls otherwise."""


@dataclass(frozen=True, kw_only=True)
class DoneAnyway:
    """A flag that asks for what quire does anyway, or for nothing."""

    flag: str
    short: str | None = None
    values: tuple[str, ...] = ()
    """Values without effect; none stands for all. A switch takes no value."""
    is_switch: bool = False
    has_negative: bool = False
    """Whether the switch may be turned off as well, which asks for what quire does not do."""
    why: str
    """Why it has no effect; of a value that is refused, what to do."""


SYNONYMS = (
    Synonym(flag="--model", setting="source"),
    Synonym(flag="--num-gpu-blocks-override", setting="max_num_blocks"),
    Synonym(flag="--api-server-count", short="-asc", setting="api_workers"),
    Synonym(flag="--shutdown-timeout", setting="drain_seconds"),
    Synonym(flag="--otlp-traces-endpoint", setting="otlp_endpoint"),
    Synonym(
        flag="--uvicorn-log-level",
        setting="log_level",
        words={"critical": "error", "trace": "debug"},
    ),
    Synonym(flag="--enable-log-requests", setting="log_requests", is_switch=True),
    Synonym(
        flag="--disable-log-requests", setting="log_requests", is_switch=True, is_opposite=True
    ),
)

DONE_ANYWAY = (
    DoneAnyway(flag="--tensor-parallel-size", short="-tp", values=("1",), why=_ONE_GPU),
    DoneAnyway(flag="--pipeline-parallel-size", short="-pp", values=("1",), why=_ONE_GPU),
    DoneAnyway(flag="--data-parallel-size", short="-dp", values=("1",), why=_ONE_GPU),
    DoneAnyway(
        flag="--quantization",
        short="-q",
        values=("none", "gguf"),
        why="weights are computed as their files have them; see --dtype packed for CPUs",
    ),
    DoneAnyway(
        flag="--load-format",
        values=("auto", "safetensors", "gguf"),
        why="GGUF and safetensors are read, whichever the model is",
    ),
    DoneAnyway(flag="--tokenizer-mode", values=("auto",), why="there is one tokenizer"),
    DoneAnyway(flag="--config-format", values=("auto", "hf"), why="there is one format"),
    DoneAnyway(
        flag="--scheduling-policy",
        values=("fcfs", "priority"),
        why="by class, then by arrival: without priorities in requests that is first come,"
        " first served",
    ),
    DoneAnyway(flag="--distributed-executor-backend", values=("uni", "mp", "auto"), why=_ONE_GPU),
    DoneAnyway(flag="--runner", values=("auto", "generate"), why="quire generates text"),
    DoneAnyway(flag="--task", values=("auto", "generate"), why="quire generates text"),
    DoneAnyway(
        flag="--cpu-offload-gb", values=("0",), why="weights stay on the device; take a smaller one"
    ),
    DoneAnyway(flag="--swap-space", why="a preempted request is computed again, not swapped out"),
    DoneAnyway(
        flag="--max-seq-len-to-capture", why="graphs are captured for every length of context"
    ),
    DoneAnyway(
        flag="--enable-chunked-prefill",
        is_switch=True,
        has_negative=True,
        why="long prompts are always computed in chunks of at most --max-num-batched-tokens",
    ),
    DoneAnyway(
        flag="--enable-auto-tool-choice",
        is_switch=True,
        why="requests with tools may leave the choice to the model in any case",
    ),
    DoneAnyway(
        flag="--exclude-tools-when-tool-choice-none",
        is_switch=True,
        why="tools that may not be called are left out of the prompt in any case",
    ),
    DoneAnyway(
        flag="--trust-remote-code",
        is_switch=True,
        why="code that comes with a model is never run",
    ),
    DoneAnyway(
        flag="--enforce-eager",
        is_switch=True,
        why="graphs are captured between steps and do not hold up the start",
    ),
    DoneAnyway(
        flag="--async-scheduling",
        is_switch=True,
        why="where it is of use the next step is planned while one is computed: see --overlap",
    ),
    DoneAnyway(
        flag="--enable-prompt-tokens-details",
        is_switch=True,
        why="answers say how many tokens of the prompt were cached in any case",
    ),
    DoneAnyway(
        flag="--enable-request-id-headers",
        is_switch=True,
        why="answers have x-request-id in any case",
    ),
    DoneAnyway(
        flag="--disable-uvicorn-access-log",
        is_switch=True,
        why="requests are logged only with --log-requests",
    ),
    DoneAnyway(flag="--max-log-len", why="prompts are never logged"),
    DoneAnyway(
        flag="--enable-reasoning", is_switch=True, why="--reasoning-parser says whether and how"
    ),
    DoneAnyway(
        flag="--chat-template-content-format",
        values=("auto", "string"),
        why="templates get contents as text",
    ),
    DoneAnyway(
        flag="--guided-decoding-backend",
        values=("auto", "xgrammar"),
        why="structured output is xgrammar's",
    ),
    DoneAnyway(flag="--response-role", values=("assistant",), why="answers are the assistant's"),
    DoneAnyway(flag="--disable-log-stats", is_switch=True, why="statistics are not logged"),
    DoneAnyway(
        flag="--disable-custom-all-reduce", is_switch=True, why="one GPU has nothing to reduce"
    ),
    DoneAnyway(
        flag="--disable-frontend-multiprocessing",
        is_switch=True,
        why="the model has a process of its own in any case",
    ),
)

NOT_HERE = {
    "--hf-token": "a token among a process's flags can be read by others; put it into HF_TOKEN, or"
    " into a file that --hf-token-file names",
    "--download-dir": "set the variable QUIRE_CACHE",
    "--ssl-keyfile": "put a proxy that ends TLS before the server",
    "--ssl-certfile": "put a proxy that ends TLS before the server",
    "--enable-lora": "adapters cannot be served; merge the adapter into the model",
    "--lora-modules": "adapters cannot be served; merge the adapter into the model",
    "--speculative-config": "there is no speculative decoding; leave it out",
    "--limit-mm-per-prompt": "prompts are text; leave it out",
    "--hf-overrides": "config.json of the model is taken as it is: change it there",
    "--rope-scaling": "config.json of the model is taken as it is: change it there",
    "--override-generation-config": "change the model's generation_config.json, or leave it to"
    " requests by --generation-config none",
    "--compilation-config": "there is nothing to compile but kernels, which are by themselves;"
    " leave it out",
    "--kv-transfer-config": "each engine has a KV cache of its own; leave it out",
    "--enable-expert-parallel": "an engine uses one GPU; leave it out",
    "--allowed-origins": "put a proxy that answers browsers of other sites before the server",
    "--root-path": "let the proxy before the server take the path away",
}
_WORDS = {
    "dtype": {"half": "float16", "float": "float32"},
    "generation_config": {"vllm": "none"},
}
"""Values of settings with the same name that quire calls otherwise."""


def add_vllm_flags(parser: argparse.ArgumentParser) -> None:
    """Add vLLM's flags that are no settings of quire."""
    group = parser.add_argument_group("vLLM", "Flags of vLLM that quire has under other names.")
    for one in SYNONYMS:
        text = f"the same as --{one.setting.replace('_', '-')}"
        names = [one.flag, *([one.short] if one.short else [])]
        _add(group, *names, is_switch=one.is_switch, text=text)
    _add(group, "--revision", is_switch=False, text="revision of a MODEL on the hub")
    for done in DONE_ANYWAY:
        _add(
            group,
            done.flag,
            *([done.short] if done.short else []),
            is_switch=done.is_switch,
            has_negative=done.has_negative,
            text=f"{effect_of(done)}: {done.why}",
        )
    for flag in NOT_HERE:
        group.add_argument(
            flag, dest=flag, nargs="*", default=argparse.SUPPRESS, help=argparse.SUPPRESS
        )


def effect_of(done: DoneAnyway) -> str:
    """What giving a flag does, in few words."""
    return "only " + " or ".join(done.values) if done.values else "no effect"


def _add(
    group: argparse._ArgumentGroup,
    *names: str,
    is_switch: bool,
    text: str,
    has_negative: bool = True,
) -> None:
    dest, text = names[0], text.replace("%", "%%")
    if is_switch and has_negative:
        action = argparse.BooleanOptionalAction
        group.add_argument(*names, dest=dest, action=action, default=argparse.SUPPRESS, help=text)
    elif is_switch:
        group.add_argument(
            *names, dest=dest, action="store_true", default=argparse.SUPPRESS, help=text
        )
    else:
        group.add_argument(*names, dest=dest, metavar="X", default=argparse.SUPPRESS, help=text)


def translate(given: Mapping[str, object], flags: Flags) -> tuple[Flags, list[str]]:
    """Settings that parsed flags ask for, vLLM's among them, and those that have no effect.

    Parameters
    ----------
    given
        All parsed flags; vLLM's by their own name.
    flags
        Settings by name, as quire's own flags ask for them.

    Raises
    ------
    ConfigError
        A flag asks for what quire does not do, or a setting is given twice.
    """
    for flag, instead in NOT_HERE.items():
        if flag in given:
            raise ConfigError(f"{flag} is vLLM's, and not quire's: {instead}")
    settings = dict(flags)
    for one in SYNONYMS:
        if one.flag in given:
            if one.setting in settings:
                own = "--" + one.setting.replace("_", "-")
                raise ConfigError(f"{one.flag} and {own} are the same: keep one")
            settings[one.setting] = _value(one, given[one.flag])
    for name, words in _WORDS.items():
        if isinstance(word := settings.get(name), str):
            settings[name] = words.get(word, word)
    _name_repository(settings, given.get("--revision"))
    return settings, [one.flag for one in DONE_ANYWAY if _has_no_effect(one, given)]


def _value(one: Synonym, given: object) -> str | bool:
    if isinstance(given, bool):
        return given is not one.is_opposite
    return one.words.get(str(given), str(given))


def _has_no_effect(one: DoneAnyway, given: Mapping[str, object]) -> bool:
    if one.flag not in given:
        return False
    value = given[one.flag]
    if value is False:
        raise ConfigError(f"{one.flag} cannot be turned off: {one.why}")
    if one.values and value not in one.values:
        raise ConfigError(f"{one.flag} {value} is not possible: {one.why}")
    return True


def _name_repository(settings: Flags, revision: object) -> None:
    """Make a repository's name, as vLLM takes it, a source on the hub; with its revision."""
    source = settings.get("source")
    if isinstance(source, str) and _REPOSITORY.fullmatch(source):
        if Path(source).exists():
            if revision is not None:
                raise ConfigError(f"--revision is for models on the hub, and {source} is here")
            return
        settings["source"] = source = f"hf://{source}"
    if revision is None:
        return
    if not isinstance(source, str) or not source.startswith("hf://") or "@" in source:
        raise ConfigError("--revision needs a MODEL on the hub, such as org/name")
    settings["source"] = f"{source}@{str(revision).replace('/', '%2F')}"
