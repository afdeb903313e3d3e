"""From defaults, a configuration file, the environment and flags to an `EngineConfig`.

    defaults  <  configuration file (JSON)  <  QUIRE_* variables  <  flags

Later ones win. Every layer is checked by itself, then the whole.
"""

from collections.abc import Mapping
from pathlib import Path

from quire_engine.config import layers
from quire_engine.config.check import check
from quire_engine.config.engine import EngineConfig
from quire_engine.config.fields import sections, settings


def parse(
    flags: Mapping[str, str | bool],
    environment: Mapping[str, str],
    *,
    config_file: str | None = None,
) -> EngineConfig:
    """Build the configuration of one engine.

    Parameters
    ----------
    flags
        Texts of flags by setting name (`max_num_seqs`, without dashes); booleans for switches.
    environment
        All environment variables; those that do not begin with QUIRE_ are not looked at.
    config_file
        Path of a JSON file; default: the variable QUIRE_CONFIG, or none.

    Raises
    ------
    ConfigError
        A setting is unknown, malformed, out of range or contradicts another.
    """
    path = config_file or environment.get(layers.CONFIG_VARIABLE)
    values = {
        **(layers.from_file(Path(path).expanduser()) if path else {}),
        **layers.from_environment(environment),
        **layers.from_flags(flags),
    }
    config = build(values)
    check(config)
    return config


def build(values: layers.Values) -> EngineConfig:
    """Put checked values into their sections; what is not given keeps its default."""
    grouped: dict[str, layers.Values] = {section: {} for section in sections()}
    for setting in settings():
        if setting.name in values:
            grouped[setting.section][setting.name] = values[setting.name]
    return EngineConfig(**{name: kind(**grouped[name]) for name, kind in sections().items()})
