"""A configuration from settings by name, checked as those of a file are."""

from quire_engine.config import EngineConfig
from quire_engine.config.check import check
from quire_engine.config.fields import by_name
from quire_engine.config.parse import build
from quire_engine.config.values import nearest, read_json
from quire_engine.errors import ConfigError


def make_config(**settings: object) -> EngineConfig:
    """Build a configuration from any of the settings in docs/reference/configuration.md.

    Example
    -------
    >>> make_config(source="/models/chat.gguf", max_num_seqs=8).scheduler.max_num_seqs
    8

    Raises
    ------
    ConfigError
        A setting is unknown, wrong, or contradicts another.
    """
    values = {}
    for name, value in settings.items():
        setting = by_name().get(name)
        if setting is None:
            raise ConfigError(f'unknown setting "{name}"{nearest(name, by_name())}')
        values[name] = read_json(setting, value, name)
    config = build(values)
    check(config)
    return config
