from pathlib import Path

from quire_engine.config.fields import settings
from quire_engine.config.layers import OTHER_VARIABLES
from quire_engine.config.markdown import reference_page
from quire_engine.config.vllm_flags import DONE_ANYWAY, NOT_HERE, SYNONYMS


def test_the_page_has_a_row_for_every_setting_and_variable() -> None:
    page = reference_page()
    for setting in settings():
        [row] = [line for line in page.splitlines() if line.startswith(f"| `{setting.flag}` |")]
        assert setting.variable in row
        assert setting.help in row
    for variable in OTHER_VARIABLES:
        assert f"| `{variable}` |" in page


def test_the_page_has_a_row_for_every_flag_of_vllm() -> None:
    page = reference_page()
    for flag in (*NOT_HERE, *(one.flag for one in (*SYNONYMS, *DONE_ANYWAY))):
        assert f"| `{flag}`" in page


def test_every_row_of_a_table_has_the_same_number_of_cells() -> None:
    settings_only = reference_page().partition("## Other variables")[0]
    rows = [line for line in settings_only.splitlines() if line.startswith("| `--")]
    assert {line.replace("\\|", "").count("|") for line in rows} == {6}


def test_the_committed_page_is_what_make_docs_writes() -> None:
    committed = Path(__file__).parents[3] / "docs" / "reference" / "configuration.md"
    assert committed.read_text() == reference_page(), "run make docs and commit the page"
