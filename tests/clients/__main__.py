"""`python -m tests.clients [NAME ...]`: other people's clients against our server, as they are.

    openai      openai-python's own test suite
    lm-eval     log-likelihoods of 200 items, against transformers
    langchain, litellm, instructor
    json-schema   its test suite, against the grammars of schemas; no server is asked

Each client has an environment of its own in the cache; `make verify-clients` runs all of them.
"""

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager

from tests.api.servers import SIMULATED, RunningServer
from tests.clients import json_schema_suite, lm_eval_scores, openai_suite
from tests.clients.environments import find_environment, run_module
from tests.clients.errors import ClientError

SMALL_MODEL = ("--max-model-len", "2048", "--max-num-blocks", "512")


def _simulated() -> AbstractContextManager[RunningServer]:
    flags = ("--simulated-step-seconds", "0", "--max-model-len", "512")
    return RunningServer(*SIMULATED, *flags, "--model-aliases", ",".join(openai_suite.MODELS))


def _real(*flags: str) -> AbstractContextManager[RunningServer]:
    return RunningServer(*SMALL_MODEL, *flags)


def check_openai() -> str:
    """The suite passes, but for what asks for something else."""
    with _simulated() as server:
        return openai_suite.verify(server.url, openai_suite.fetch())


def check_lm_eval() -> str:
    """Log-likelihoods over HTTP are those of transformers."""
    with _real("--dtype", "float32") as server:
        return lm_eval_scores.verify(server.url, find_environment("lm-eval"))


def _check_script(name: str) -> Callable[[], str]:
    def check() -> str:
        environment = find_environment(name)
        with _real() as server:
            return run_module(environment, f"tests.clients.with_{name}", server.url)

    return check


CHECKS: dict[str, Callable[[], str]] = {
    "openai": check_openai,
    "lm-eval": check_lm_eval,
    "langchain": _check_script("langchain"),
    "litellm": _check_script("litellm"),
    "instructor": _check_script("instructor"),
    "json-schema": json_schema_suite.verify,
}


def main(names: list[str]) -> int:
    """Run these checks, all if there are none; the exit status is returned."""
    unknown = set(names) - CHECKS.keys()
    if unknown:
        print(f"unknown: {', '.join(sorted(unknown))}; there are {', '.join(CHECKS)}")
        return 2
    failed = []
    for name in names or CHECKS:
        try:
            print(f"{name}: {CHECKS[name]()}", flush=True)
        except ClientError as error:
            failed.append(name)
            print(f"{name}: FAILED\n{error}", flush=True)
    print(f"failed: {', '.join(failed)}" if failed else "all clients are content")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
