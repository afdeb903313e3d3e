"""Command-line flags for every setting, generated from the dataclasses."""

import argparse
from collections.abc import Mapping, Sequence
from typing import NoReturn

from quire_engine.config.engine import EngineConfig
from quire_engine.config.fields import Setting, sections, settings
from quire_engine.config.parse import parse
from quire_engine.config.values import choices, is_several, joined, nearest, noun_type
from quire_engine.config.vllm_flags import translate
from quire_engine.errors import ConfigError

_METAVARS = {int: "N", float: "X", str: "TEXT"}


class FlagParser(argparse.ArgumentParser):
    """An argument parser whose mistakes are `ConfigError`, and which knows the nearest flag."""

    def __init__(self, *, prog: str, description: str) -> None:
        super().__init__(
            prog=prog,
            usage=f"{prog} [MODEL] [--setting VALUE ...]",
            description=description,
            allow_abbrev=False,
        )

    def error(self, message: str) -> NoReturn:
        """Raise what argparse would print."""
        raise ConfigError(f"{message}; see {self.prog} --help")

    def parse_known(self, argv: Sequence[str]) -> argparse.Namespace:
        """Parse all of `argv`.

        Raises
        ------
        ConfigError
            A flag is unknown, lacks its value, or an argument is one too many.
        """
        namespace, unknown = self.parse_known_args([_with_dashes(word) for word in argv])
        if unknown:
            name = unknown[0].split("=")[0]
            known = [flag for flag in self._option_string_actions if flag.startswith("--")]
            what = "flag" if name.startswith("-") else "argument"
            hint = nearest(name, known) or f"; see {self.prog} --help"
            raise ConfigError(f"unknown {what} {name}{hint}")
        return namespace


def _with_dashes(word: str) -> str:
    """A flag written with underscores, as vLLM takes it too, with dashes; others as they are."""
    if not word.startswith("--"):
        return word
    name, equals, value = word.partition("=")
    return name.replace("_", "-") + equals + value


class _Several(argparse.Action):
    """Takes the words of a flag that stands for several, also when it is given more than once."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,  # noqa: ARG002
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        """Add the words to those before."""
        words = list(values) if isinstance(values, list) else [str(values)]
        before = getattr(namespace, self.dest, None)
        text = joined(words, option_string or self.dest)
        setattr(namespace, self.dest, f"{before},{text}" if before else text)
        if len(words) > 1:
            vars(namespace).setdefault("greedy", option_string)


def add_setting_flags(parser: argparse.ArgumentParser) -> None:
    """Add MODEL, --config and a flag for every setting, grouped by section."""
    parser.add_argument("model", nargs="?", metavar="MODEL", help="the same as --source MODEL")
    parser.add_argument("--config", metavar="FILE", help="JSON file of settings, by section")
    for section, owner in sections().items():
        text = (owner.__doc__ or "").strip()
        group = parser.add_argument_group(section, text)
        for setting in settings():
            if setting.section == section:
                _add_flag(group, setting)


def _add_flag(group: argparse._ArgumentGroup, setting: Setting) -> None:
    default = f" [{setting.default_text}]" if setting.default_text else ""
    text = f"{setting.help}{default}".replace("%", "%%")
    if setting.is_switch:
        group.add_argument(
            setting.flag,
            dest=setting.name,
            action=argparse.BooleanOptionalAction,
            default=argparse.SUPPRESS,
            help=text,
        )
        return
    if is_several(setting):
        group.add_argument(
            setting.flag,
            dest=setting.name,
            metavar="TEXT",
            nargs="+",
            action=_Several,
            default=argparse.SUPPRESS,
            help=text,
        )
        return
    few = choices(setting)
    metavar = "{" + ",".join(few) + "}" if few else _METAVARS[noun_type(setting)]
    group.add_argument(
        setting.flag, dest=setting.name, metavar=metavar, default=argparse.SUPPRESS, help=text
    )


def config_from(namespace: argparse.Namespace, environment: Mapping[str, str]) -> EngineConfig:
    """The configuration that parsed flags and the environment ask for.

    Raises
    ------
    ConfigError
        See `quire_engine.config.parse.parse`; also MODEL together with --source.
    """
    return parse(own_flags(vars(namespace)), environment, config_file=namespace.config)


def serve_config_from(
    namespace: argparse.Namespace, environment: Mapping[str, str]
) -> tuple[EngineConfig, list[str]]:
    """The same where vLLM's flags are taken too; also those that have no effect.

    Raises
    ------
    ConfigError
        See `config_from` and `quire_engine.config.vllm_flags.translate`.
    """
    given = vars(namespace)
    flags, idle = translate(given, own_flags(given))
    if "greedy" in given and "source" not in flags and "simulate" not in flags:
        raise ConfigError(
            f"{given['greedy']} took several words, and there is no MODEL: put MODEL before it, "
            "or use commas between them"
        )
    return parse(flags, environment, config_file=namespace.config), idle


def own_flags(given: Mapping[str, object]) -> dict[str, str | bool]:
    """Settings among parsed flags, by name; MODEL is the source.

    Raises
    ------
    ConfigError
        The model is given twice.
    """
    names = [setting.name for setting in settings()]
    flags = {name: value for name in names if isinstance(value := given.get(name), str | bool)}
    model = given.get("model")
    if isinstance(model, str):
        if "source" in flags:
            raise ConfigError(f'the model is given twice, as "{model}" and with --source: keep one')
        flags["source"] = model
    return flags
