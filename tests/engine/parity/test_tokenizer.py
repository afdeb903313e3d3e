"""The tokenizer of a GGUF file gives the ids that transformers' gives, on the model's own file."""

import random
import warnings
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoTokenizer

from quire_engine.tokenizing.tokenizer import Tokenizer
from tests.engine.parity.prompts import PROMPTS

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

TEXTS = [
    *PROMPTS,
    "",
    " ",
    "\n\n\n",
    "\t tabs\tand  two  spaces   three\r\n",
    "1234567890 3.14159 1e10 五",
    "naïve café Größe œuvre ﬁne Å Å",
    "🙂👩‍👩‍👧‍👦🏳️‍🌈 flags 🇩🇪",
    "مرحبا עברית हिन्दी ไทย 한국어 中文",
    "<|im_start|>system\nx<|im_end|>\n<|endoftext|><repo_name>a",
    "I'll they've we'd it's 'S 'LL",
    "def f(x):\n        return x**2  # comment\n",
    "\x00\x01\x7f\u200b\ufeff\U0010ffff",
]


@pytest.fixture(scope="module")
def reference(model_path: Path) -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return AutoTokenizer.from_pretrained(str(model_path.parent), gguf_file=model_path.name)


def test_ids_and_text(tokenizer: Tokenizer, reference: Any) -> None:
    for text in TEXTS:
        ids = tokenizer.encode(text)
        assert ids == reference(text).input_ids, text
        for skip in (False, True):
            expected = reference.decode(ids, skip_special_tokens=skip)
            assert tokenizer.decode(ids, skip_special_tokens=skip) == expected


def test_random_text(tokenizer: Tokenizer, reference: Any) -> None:
    rng = random.Random(1)
    alphabet = "abc XYZ,.'’-\n\té日🙂ß" + "the and ing "
    for _ in range(300):
        text = "".join(rng.choices(alphabet, k=rng.randrange(80)))
        assert tokenizer.encode(text) == reference(text).input_ids, repr(text)


def test_special_tokens(tokenizer: Tokenizer, reference: Any) -> None:
    assert tokenizer.vocab_size == len(reference)
    assert tokenizer.eos_token_ids[0] == reference.eos_token_id
    assert tokenizer.bos_token_id == reference.bos_token_id
    added = reference.added_tokens_decoder
    assert tokenizer.special_token_ids == {i for i, token in added.items() if token.special}


def test_chat_template(tokenizer: Tokenizer, reference: Any) -> None:
    messages = [
        {"role": "user", "content": "Hi! What's 2+2?"},
        {"role": "assistant", "content": ""},
        {"role": "user", "content": "日本 🙂"},
    ]
    template = tokenizer.chat_template
    assert template is not None
    for add in (False, True):
        expected = reference.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=add
        )
        assert template.render(messages, add_generation_prompt=add) == expected


def test_spaces_before_digits_follow_the_model_not_transformers(
    tokenizer: Tokenizer, reference: Any
) -> None:
    """SmolLM2's own tokenizer.json splits digits first; transformers' reading of GGUF does not."""
    space, two_spaces, digit_one = 216, 256, 33
    assert tokenizer.encode("  1") == [two_spaces, digit_one]
    assert reference("  1").input_ids == [space, space, digit_one]
    assert tokenizer.encode(" ¼")[:1] == [space]
    assert reference(" ¼").input_ids[:1] != [space]


@settings(deadline=None, max_examples=300)
@given(text=st.text(max_size=60))
def test_streamed_text_is_what_decoding_at_once_gives(tokenizer: Tokenizer, text: str) -> None:
    ids = tokenizer.encode(text)
    detokenizer = tokenizer.detokenizer(skip_special_tokens=False)
    streamed = detokenizer.push_all(ids) + detokenizer.finish()
    # not always the text itself: this vocabulary lacks bytes of rare characters
    assert streamed == tokenizer.decode(ids, skip_special_tokens=False)
