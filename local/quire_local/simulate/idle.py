"""Flags that would change nothing beside the others: refused, or somebody would believe in them."""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from quire_engine.errors import ConfigError


@dataclass(frozen=True)
class Rule:
    """When a flag is of use."""

    flag: str
    where: str
    """In words."""
    is_used: Callable[[argparse.Namespace], bool]


def _scales_by(*scalers: str) -> Callable[[argparse.Namespace], bool]:
    return lambda parsed: any(name in parsed.scaler for name in scalers)


def _is_start_waited_for(parsed: argparse.Namespace) -> bool:
    """Whether a replica is ever ordered that does not come at once."""
    breaks = parsed.fail_hours is not None or parsed.spot or parsed.event
    return _scales_by("quire", "single", "keda", "hpa", "greedy")(parsed) or (
        bool(breaks) and _scales_by("melange", "fixed")(parsed)
    )


OF_TRAFFIC = (
    Rule("--requests-per-second", "with --generate", lambda parsed: parsed.trace is None),
    Rule("--skip-bad-rows", "with --trace", lambda parsed: parsed.generate is None),
)
OF_A_PLAN = (
    *OF_TRAFFIC,
    Rule(
        "--seed",
        "with --generate or --times",
        lambda parsed: parsed.trace is None or parsed.times != 1.0,
    ),
)
OF_A_SIMULATION = (
    *OF_TRAFFIC,
    Rule("--fixed", "with --scaler fixed", _scales_by("fixed")),
    Rule(
        "--min-replicas",
        "with --scaler quire, single, keda or hpa",
        _scales_by("quire", "single", "keda", "hpa"),
    ),
    Rule(
        "--max-replicas",
        "with --scaler quire, single, keda, hpa or greedy",
        _scales_by("quire", "single", "keda", "hpa", "greedy"),
    ),
    Rule("--max-cost-per-hour", "with --scaler quire or single", _scales_by("quire", "single")),
    Rule(
        "--restart-operator",
        "with --scaler quire or single, and without --services",
        lambda parsed: parsed.services is None and _scales_by("quire", "single")(parsed),
    ),
    Rule(
        "--start-seconds",
        "where a scaler orders replicas, or faults take them from melange or fixed",
        _is_start_waited_for,
    ),
)


def find_idle(argv: Sequence[str], parsed: argparse.Namespace, rules: Sequence[Rule]) -> list[Rule]:
    """Return the rules of flags that were given and are of no use.

    Parameters
    ----------
    argv
        What was parsed: a flag that has its default's value there was given, too.
    """
    given = {text.partition("=")[0] for text in argv}
    return [rule for rule in rules if rule.flag in given and not rule.is_used(parsed)]


def refuse_idle(idle: Sequence[Rule]) -> None:
    """Raise ConfigError for the first of them, if there is one."""
    for rule in idle:
        raise ConfigError(f"{rule.flag} is of use only {rule.where}: leave it out")
