"""The three places that settings come from besides their defaults: file, environment, flags.

Each layer becomes a dictionary of checked values by setting name. Nothing unknown is dropped: a
name that no setting has is an error that names the nearest one, for a misspelt limit that
silently isn't one is found out only under load.
"""

import json
import re
from collections.abc import Mapping
from pathlib import Path

from quire_engine.config.fields import Setting, by_name, sections, settings
from quire_engine.config.values import nearest, read_json, read_text, shown
from quire_engine.errors import ConfigError

Values = dict[str, object]

CONFIG_VARIABLE = "QUIRE_CONFIG"
OTHER_VARIABLES = {
    CONFIG_VARIABLE: "Path of a configuration file; the flag --config wins over it.",
    "QUIRE_CACHE": "Folder for downloaded models and compiled kernels; default: ~/.cache/quire.",
    "QUIRE_KERNELS": "GPU kernels compiled ahead: a file of `quire kernels`, or a folder of them.",
    "QUIRE_TRACE": "CSV file of request lengths, for benchmarks and tests; default: generated.",
}
"""Variables that begin like settings and are none, with their documentation."""
_SECRETIVE = re.compile("KEY|TOKEN|SECRET|PASSWORD")
"""What a variable is called that may hold what no error may show."""
_SERVICE_SCHEMES = ("tcp://", "udp://", "sctp://")
"""What Kubernetes' variables of Services begin with; those without sort behind one that has it."""


def from_file(path: Path) -> Values:
    """Values of a JSON file: an object of sections, each an object of settings.

    Raises
    ------
    ConfigError
        The file cannot be read, is not such an object, or has unknown or wrong settings.
    """
    content = _load(path)
    values: Values = {}
    for section, members in content.items():
        if section not in sections():
            raise ConfigError(_unknown_section(path, section))
        if not isinstance(members, dict):
            raise ConfigError(f"{path}: {section} is {shown(members)}, but accepts an object")
        for name, value in members.items():
            values[name] = _member(path, section, name, value)
    return values


def _load(path: Path) -> dict[str, object]:
    try:
        content = json.loads(path.read_bytes())
    except OSError as error:
        reason = error.strerror or error
        raise ConfigError(f"cannot read the configuration file {path}: {reason}") from error
    except ValueError as error:
        advice = "; files of YAML, as vLLM takes them, are not read: give their lines as flags"
        more = advice if path.suffix in (".yaml", ".yml") else ""
        raise ConfigError(
            f"the configuration file {path} is not valid JSON: {error}{more}"
        ) from error
    except RecursionError:
        raise ConfigError(f"the configuration file {path} is nested too deeply") from None
    if not isinstance(content, dict):
        raise ConfigError(f"{path} is not a JSON object with the sections {_section_names()}")
    return content


def _member(path: Path, section: str, name: str, value: object) -> object:
    setting = by_name().get(name)
    if setting is None or setting.section != section:
        here = [known.name for known in settings() if known.section == section]
        hint = f'; it belongs in "{setting.section}"' if setting else nearest(name, here)
        raise ConfigError(f'{path}: unknown setting "{name}" in "{section}"{hint}')
    return read_json(setting, value, f"{path}: {section}.{name}")


def _unknown_section(path: Path, section: str) -> str:
    if setting := by_name().get(section):
        return f'{path}: "{section}" belongs in the section "{setting.section}"'
    hint = nearest(section, sections())
    return f'{path}: unknown section "{section}"; there are {_section_names()}{hint}'


def _section_names() -> str:
    return ", ".join(sections())


def from_environment(environment: Mapping[str, str]) -> Values:
    """Values of the variables whose name begins with QUIRE_.

    Raises
    ------
    ConfigError
        A variable has a wrong value, or its name is no setting's.
    """
    known = {setting.variable: setting for setting in settings()}
    values: Values = {}
    for variable, text in sorted(environment.items()):
        if not variable.startswith("QUIRE_") or variable in OTHER_VARIABLES:
            continue
        if text.startswith(_SERVICE_SCHEMES):
            raise ConfigError(_service_link(variable, text))
        if variable not in known:
            hint = nearest(variable, [*known, *OTHER_VARIABLES]) or "; unset it"
            value = "" if _SECRETIVE.search(variable) else f"={shown(text)}"
            raise ConfigError(f"unknown environment variable {variable}{value}{hint}")
        setting = known[variable]
        values[setting.name] = read_text(setting, text, f"environment variable {variable}")
    return values


def _service_link(variable: str, text: str) -> str:
    return (
        f"environment variable {variable}={shown(text)} was set by Kubernetes for a Service whose "
        'name begins with "quire": set enableServiceLinks: false in the pod\'s spec'
    )


def from_flags(flags: Mapping[str, str | bool]) -> Values:
    """Values of command-line flags, given as setting names and texts; switches as booleans.

    Raises
    ------
    ConfigError
        A flag has a wrong value.
    """
    return {name: _from_flag(by_name()[name], given) for name, given in flags.items()}


def _from_flag(setting: Setting, given: str | bool) -> object:
    return given if isinstance(given, bool) else read_text(setting, given, setting.flag)
