"""The command line, generated from the settings."""

import pytest

from quire_engine.config.engine import EngineConfig
from quire_engine.config.fields import settings
from quire_engine.config.flags import FlagParser, add_setting_flags, config_from
from quire_engine.errors import ConfigError


def _parser() -> FlagParser:
    parser = FlagParser(prog="quire serve", description="")
    add_setting_flags(parser)
    return parser


def _config(*argv: str, **environment: str) -> EngineConfig:
    return config_from(_parser().parse_known(argv), environment)


def test_every_setting_has_a_flag_with_its_text() -> None:
    actions = {flag: action for action in _parser()._actions for flag in action.option_strings}
    for setting in settings():
        told = (actions[setting.flag].help or "").replace("%%", "%")  # as argparse shows it
        assert setting.help in told
        assert setting.default_text in (actions[setting.flag].help or "")


def test_help_is_printable(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        _parser().parse_known(["--help"])
    assert caught.value.code == 0
    assert "--block-size {16,32,64}" in capsys.readouterr().out


def test_model_is_the_source() -> None:
    assert _config("/models/a.gguf").model.source == "/models/a.gguf"
    assert _config("--source=b.gguf").model.source == "b.gguf"


def test_flags_win_over_the_environment() -> None:
    assert _config("--port", "1", QUIRE_PORT="2").server.port == 1
    assert _config(QUIRE_PORT="2").server.port == 2


def test_switches_have_a_negative() -> None:
    assert not _config("--no-enable-prefix-caching").cache.enable_prefix_caching
    on = _config("--enable-prefix-caching", QUIRE_ENABLE_PREFIX_CACHING="false")
    assert on.cache.enable_prefix_caching


@pytest.mark.parametrize(
    ("argv", "parts"),
    [
        (["--blok-size", "16"], ["unknown flag --blok-size", "did you mean --block-size?"]),
        (["--block-siz=16"], ["unknown flag --block-siz", "did you mean --block-size?"]),
        (["--qqq"], ["unknown flag --qqq", "quire serve --help"]),
        (["a", "b"], ["unknown argument b"]),
        (["a", "--source", "b"], ['given twice, as "a" and with --source']),
        (["--port"], ["--port", "expected one argument", "quire serve --help"]),
        (["--block-size", "17"], ['--block-size is "17"', "one of 16, 32, 64"]),
    ],
)
def test_wrong_usage_is_one_clear_error(argv: list[str], parts: list[str]) -> None:
    with pytest.raises(ConfigError) as caught:
        _config(*argv)
    for part in parts:
        assert part in str(caught.value)


def test_a_negative_number_reaches_the_range_check() -> None:
    with pytest.raises(ConfigError, match='--port is "-1"'):
        _config("--port=-1")
