"""Loading tokenizers from folders, and what a loaded one offers."""

import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from quire_engine.errors import ModelError, RequestError
from quire_engine.tokenizing.loading import load_tokenizer
from quire_engine.tokenizing.template_file import read_template
from tests.unit.tokenizing.builders import CHATML, CORPUS, train_byte_level, write_folder

BACKEND = train_byte_level()


def test_a_folder_gives_ids_special_tokens_and_template(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write_folder(tmp_path, BACKEND, chat_template=CHATML))
    assert tokenizer.encode(CORPUS[1]) == BACKEND.encode(CORPUS[1]).ids
    assert tokenizer.decode(tokenizer.encode(CORPUS[1])) == CORPUS[1]
    assert tokenizer.vocab_size == BACKEND.get_vocab_size()
    assert tokenizer.bos_token_id == 1
    assert tokenizer.eos_token_ids == (0,)
    assert tokenizer.special_token_ids == {0, 1}
    assert tokenizer.token(0) == "<|end|>"
    assert tokenizer.token(10**6) is None
    assert tokenizer.chat_template is not None
    assert tokenizer.chat_template.source == CHATML


@pytest.mark.parametrize("call", ["encode", "decode"])
def test_other_threads_run_while_a_long_text_is_worked_on(
    call: str, tmp_path: Path, reluctant_threads: None
) -> None:
    tokenizer = load_tokenizer(write_folder(tmp_path, BACKEND))
    text = CORPUS[0] * 20_000
    token_ids = tokenizer.encode(text)
    works: dict[str, Callable[[], object]] = {
        "encode": lambda: tokenizer.encode(text),
        "decode": lambda: tokenizer.decode(token_ids),
    }
    has_begun, order = threading.Event(), []

    def work() -> None:
        has_begun.set()
        works[call]()
        order.append("worker")

    worker = threading.Thread(target=work)
    worker.start()
    has_begun.wait()
    order.append("others")
    worker.join()

    assert order == ["others", "worker"]


@pytest.fixture
def reluctant_threads() -> Iterator[None]:
    """No thread of Python gives the GIL up until it waits or a library releases it."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(600)
    yield
    sys.setswitchinterval(before)


def test_the_tokenizers_end_token_ends_a_generation_beside_the_models(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, BACKEND)
    (folder / "generation_config.json").write_text('{"eos_token_id": [7, 8]}')
    assert load_tokenizer(folder).eos_token_ids == (7, 8, 0)


def test_a_template_of_its_own_file_wins(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, BACKEND, chat_template="old")
    (folder / "chat_template.jinja").write_text("{{ eos_token }}")
    template = load_tokenizer(folder).chat_template
    assert template is not None
    assert template.render([]) == "<|end|>"


def test_the_default_of_several_templates_is_taken(tmp_path: Path) -> None:
    several = [{"name": "tools", "template": "a"}, {"name": "default", "template": "b"}]
    template = load_tokenizer(write_folder(tmp_path, BACKEND, chat_template=several)).chat_template
    assert template is not None
    assert template.render([]) == "b"


def test_the_template_for_tools_is_kept_beside(tmp_path: Path) -> None:
    several = [{"name": "tool_use", "template": "a"}, {"name": "default", "template": "b"}]
    listed = load_tokenizer(write_folder(tmp_path, BACKEND, chat_template=several))
    alone = load_tokenizer(write_folder(tmp_path, BACKEND, chat_template="c"))
    (tmp_path / "additional_chat_templates").mkdir()
    (tmp_path / "additional_chat_templates" / "tool_use.jinja").write_text("d")
    filed = load_tokenizer(tmp_path)

    templates = [one.tool_template for one in (listed, alone, filed)]
    assert [template and template.source for template in templates] == ["a", None, "d"]


def test_a_model_without_template_cannot_chat(tmp_path: Path) -> None:
    assert load_tokenizer(write_folder(tmp_path, BACKEND)).chat_template is None


def test_a_damaged_tokenizer_is_named(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, BACKEND)
    (folder / "tokenizer.json").write_text('{"version": "1.0"')
    with pytest.raises(ModelError, match=r"tokenizer\.json cannot be read"):
        load_tokenizer(folder)


@pytest.mark.parametrize(
    "template", [3, [3], {"default": "a"}, [{"name": "default", "template": 3}]]
)
def test_a_chat_template_that_is_no_text_is_named(tmp_path: Path, template: object) -> None:
    folder = write_folder(tmp_path, BACKEND, chat_template=template)
    if template == [3]:
        assert load_tokenizer(folder).chat_template is None
        return
    with pytest.raises(ModelError, match="chat_template must be text, or a list of named"):
        load_tokenizer(folder)


def test_a_chat_template_with_a_mistake_is_named(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, BACKEND, chat_template="{% for m in messages %}{{ m")
    with pytest.raises(ModelError, match="chat template"):
        load_tokenizer(folder)


def test_a_chat_template_file_that_is_no_text_is_named(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, BACKEND)
    (folder / "chat_template.jinja").write_bytes(b"\xff\xfe")
    with pytest.raises(ModelError, match=r"chat_template\.jinja cannot be read"):
        load_tokenizer(folder)


def test_half_a_character_is_refused(tmp_path: Path) -> None:
    tokenizer = load_tokenizer(write_folder(tmp_path, BACKEND))
    with pytest.raises(RequestError, match="lone surrogate"):
        tokenizer.encode("a\ud800b")


def test_loading_imports_no_torch(tmp_path: Path) -> None:
    folder = write_folder(tmp_path, BACKEND)
    script = (
        "import sys; from pathlib import Path\n"
        "from quire_engine.tokenizing.loading import load_tokenizer\n"
        f"load_tokenizer(Path({str(folder)!r}))\n"
        "sys.exit('torch' in sys.modules)"
    )
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == 0


def test_a_template_of_the_users_takes_the_place_of_all_that_the_model_has(tmp_path: Path) -> None:
    several = [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]
    for own in (several, None):
        tokenizer = load_tokenizer(write_folder(tmp_path, BACKEND, chat_template=own))
        tokenizer.use_template("{{ eos_token }}{{ messages[0].content }}")

        assert tokenizer.tool_template is None
        assert tokenizer.chat_template is not None
        assert tokenizer.chat_template.render([{"content": "hi"}]) == "<|end|>hi"


def test_a_template_is_given_by_its_file_or_as_text(tmp_path: Path) -> None:
    file = tmp_path / "mine.jinja"
    file.write_text("{{ messages }}")

    assert read_template(str(file)) == "{{ messages }}"
    assert read_template("{{ bos_token }}") == "{{ bos_token }}"
    assert read_template("{{ x }}" * 1000) == "{{ x }}" * 1000
    with pytest.raises(ModelError, match="there is no such file; give a Jinja file"):
        read_template(str(tmp_path / "none.jinja"))
    with pytest.raises(ModelError, match="cannot be read"):
        read_template(str(tmp_path))
