import dataclasses
from dataclasses import dataclass

import pytest

from quire_engine.config import EngineConfig
from quire_engine.config.fields import by_name, documentation, sections, settings


def test_every_field_of_every_section_is_a_setting() -> None:
    expected = [
        (section, field.name)
        for section, owner in sections().items()
        for field in dataclasses.fields(owner)
    ]
    assert [(setting.section, setting.name) for setting in settings()] == expected
    assert len(expected) > 20


def test_defaults_are_those_of_the_dataclasses() -> None:
    config = EngineConfig()
    for setting in settings():
        assert getattr(getattr(config, setting.section), setting.name) == setting.default


def test_every_setting_is_documented_by_a_sentence() -> None:
    for setting in settings():
        assert setting.help.endswith("."), setting.name
        assert "\n" not in setting.help


def test_flag_and_variable_follow_from_the_name() -> None:
    setting = by_name()["max_num_seqs"]
    assert (setting.flag, setting.variable) == ("--max-num-seqs", "QUIRE_MAX_NUM_SEQS")


def test_none_is_a_value_only_of_optional_settings() -> None:
    assert by_name()["max_num_blocks"].is_optional
    assert not by_name()["block_size"].is_optional


@dataclass(frozen=True)
class Undocumented:
    """A section with a field that nobody explained."""

    explained: int = 1
    """Text
    over two lines."""
    unexplained: int = 2


@dataclass(frozen=True)
class Documented:
    """A section."""

    explained: int = 1
    """Text
    over two lines."""


def test_a_field_without_text_is_a_bug() -> None:
    with pytest.raises(RuntimeError, match=r"bug: .*unexplained"):
        documentation(Undocumented)


def test_text_over_several_lines_becomes_one_line() -> None:
    assert documentation(Documented) == {"explained": "Text over two lines."}
