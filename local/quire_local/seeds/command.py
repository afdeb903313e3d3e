"""`quire --input TEXT` and `quire --serve`: the seed's two commands."""

import argparse
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from quire_engine.__main__ import report_errors
from quire_engine.config import EngineConfig, layers
from quire_engine.config.check import check
from quire_engine.config.fields import settings
from quire_engine.config.flags import FlagParser, add_setting_flags, own_flags
from quire_engine.config.parse import build
from quire_engine.config.values import read_text
from quire_engine.errors import ConfigError
from quire_local.asking import Question
from quire_local.complete import answer
from quire_local.numbers import count, share, temperature
from quire_local.seeds.file import read_file
from quire_local.seeds.mapping import Mapped, map_config
from quire_local.seeds.settings import Limits, SeedConfig, plain_settings

_DESCRIPTION = (
    "Answer one prompt (--input), or serve (--serve), with the seed program's parameters and "
    "defaults. All settings of `quire serve` work as well."
)
_GENERATION_FLAGS = ("max_tokens", "temperature", "top_p")
_MAX_TOKENS, _TEMPERATURE, _TOP_P = 100, 1.0, 0.9
_MODEL_FLAGS = ("source", "simulate", "command")


def main(argv: Sequence[str]) -> int:
    """Answer or serve; the exit status is returned."""
    return report_errors(lambda: _run(_parser().parse_known(argv)))


def _run(parsed: argparse.Namespace) -> int:
    given = vars(parsed)
    if parsed.input is not None and parsed.serve:
        raise ConfigError("--input and --serve exclude each other: keep one")
    if parsed.input is None and not parsed.serve and parsed.config is None:
        raise ConfigError("there is nothing to do: give --input TEXT or --serve")
    config, mapped = read_configuration(given, os.environ)
    if mapped.note is not None:
        print(f"quire: {mapped.note}", file=sys.stderr)
    if parsed.input is None:
        _refuse_generation_flags(given)
        from quire_engine.server.run import run

        return run(config)
    question = Question(
        text=parsed.input,
        max_tokens=given.get("max_tokens", _MAX_TOKENS),
        temperature=given.get("temperature", _TEMPERATURE),
        choices={"top_p": given.get("top_p", _TOP_P)},
        is_raw=parsed.raw or not mapped.has_model,
    )
    return answer(config, question, sys.stdout)


def read_configuration(
    given: Mapping[str, object], environment: Mapping[str, str]
) -> tuple[EngineConfig, Mapped]:
    """The configuration that flags, environment and the seed's file ask for.

    Raises
    ------
    ConfigError
        A parameter is unknown, wrong, or contradicts another.
    """
    path = given.get("config")
    seed = read_file(Path(str(path)).expanduser()) if path else SeedConfig()
    seed = replace(seed, limits=replace(seed.limits, **_seed_flags(given)))
    flags = _own_flags(given)
    own = {**layers.from_environment(environment), **layers.from_flags(flags)}
    mapped = map_config(seed, names_model=any(name in own for name in _MODEL_FLAGS))
    config = build({**mapped.values, **own})
    check(config)
    return config, mapped


def _own_flags(given: Mapping[str, object]) -> dict[str, str | bool]:
    """Flags of quire's own settings that are not the seed's."""
    seeds = plain_settings(Limits)
    return own_flags({name: value for name, value in given.items() if name not in seeds})


def _seed_flags(given: Mapping[str, object]) -> dict[str, Any]:
    return {
        name: read_text(setting, str(given[name]), setting.flag)
        for name, setting in plain_settings(Limits).items()
        if name in given
    }


def _refuse_generation_flags(given: Mapping[str, object]) -> None:
    for name in _GENERATION_FLAGS:
        if name in given:
            flag = "--" + name.replace("_", "-")
            raise ConfigError(f"{flag} is for --input: a server is told by each request")


def _parser() -> FlagParser:
    parser = FlagParser(prog="quire", description=_DESCRIPTION)
    parser.usage = "quire (--input TEXT | --serve) [MODEL] [--setting VALUE ...]"
    parser.add_argument("--input", metavar="TEXT", help="the prompt to answer")
    parser.add_argument("--serve", action="store_true", help="serve the API on port 3000")
    parser.add_argument(
        "--raw", action="store_true", help="continue the text as it is, without a chat template"
    )
    generation = parser.add_argument_group("generation", "How the prompt is answered.")
    for name, kind, default, text in (
        ("max-tokens", count, _MAX_TOKENS, "most tokens to generate"),
        ("temperature", temperature, _TEMPERATURE, "0 always takes the most likely token"),
        ("top-p", share, _TOP_P, "choose among the most likely tokens that reach this together"),
    ):
        generation.add_argument(
            f"--{name}", type=kind, default=argparse.SUPPRESS, help=f"{text} [{default}]"
        )
    add_setting_flags(parser)
    _add_seed_flags(parser)
    return parser


def _add_seed_flags(parser: FlagParser) -> None:
    """Flags that only the seed has; those that quire has too are there, with other defaults."""
    ours = {setting.name for setting in settings()}
    group = parser.add_argument_group("seed", "Parameters by the seed program's names.")
    defaults = []
    for name, setting in plain_settings(Limits).items():
        defaults.append(f"{setting.flag} {setting.default_text}")
        if name not in ours:
            group.add_argument(
                setting.flag, dest=name, metavar="X", default=argparse.SUPPRESS, help=setting.help
            )
    parser.epilog = "Defaults of these two commands: " + ", ".join(defaults) + ", --port 3000."
