"""The engine as a library: results, streams, what is refused, and requests without end."""

import asyncio
import dataclasses
import logging
import subprocess
import sys

import pytest

import quire_engine
from quire_engine import Engine, GenerationParams, Result, make_config
from quire_engine.errors import ConfigError, EngineDeadError, RequestError
from quire_engine.library.choosing import choose
from quire_engine.library.stall import StallWatch
from quire_engine.models.generation_defaults import GenerationDefaults
from quire_engine.protocol.sampling import SamplingParams
from tests.engine.small_engines import configure, of_tokens


def test_results_come_in_the_order_of_submission_whatever_ends_first() -> None:
    with Engine(configure()) as engine:
        ids = [engine.submit_request("Hello, world!", of_tokens(n)) for n in (30, 5, 12)]
        results = engine.run()
        assert [result.request_id for result in results] == ids
        assert [len(result.token_ids) for result in results] == [30, 5, 12]
        assert {result.finish_reason for result in results} == {"length"}
        assert all(len(result.output_text) == len(result.token_ids) for result in results)
        assert results[0].num_prompt_tokens == len("Hello, world!")
        assert engine.run() == []
        assert engine.core.stats().blocks.held == 0
        engine.core.check_invariants()


def test_a_step_returns_what_ended_by_it() -> None:
    with Engine(configure()) as engine:
        engine.submit_request("a", of_tokens(1))
        engine.submit_request("b", of_tokens(3))
        steps = [[len(result.token_ids) for result in engine.step()] for _ in range(3)]
        assert steps == [[1], [], [3]]
        assert not engine.has_work


def test_the_same_prompt_is_answered_alike_alone_and_among_others() -> None:
    with Engine(configure()) as engine:
        engine.submit_request("Hello", of_tokens(20))
        (alone,) = engine.run()
        for prompt in ("Hello", "other", "Hello"):
            engine.submit_request(prompt, of_tokens(20))
        first, other, third = engine.run()
        assert first.output_text == third.output_text == alone.output_text != other.output_text


def test_a_stop_text_ends_the_output_before_it() -> None:
    with Engine(configure()) as engine:
        engine.submit_request("Hello", of_tokens(40))
        (whole,) = engine.run()
        stop = whole.output_text[10:13]
        engine.submit_request("Hello", of_tokens(40, stop=(stop,)))
        (cut,) = engine.run()
        assert cut.output_text == whole.output_text[: whole.output_text.index(stop)]
        assert cut.finish_reason == "stop"
        assert engine.core.stats().blocks.held == 0


MAKERS = GenerationDefaults(min_p=0.05, repetition_penalty=1.1, top_k=20, temperature=0.6)


def chosen(**choices: object) -> SamplingParams:
    """What the core is told of "Hello" for a model whose makers have wishes."""
    with Engine(configure()) as engine:
        tokenizer, facts = engine.tokenizer, engine.core.facts
        token_ids = tokenizer.encode("Hello")
        params = of_tokens(12, **choices)
        sampling, beams = choose(
            params,
            token_ids,
            tokenizer=tokenizer,
            facts=facts,
            defaults=MAKERS,
            max_num_seqs=8,
        )
        assert beams is None
        return sampling


def test_everything_that_can_be_said_of_sampling_reaches_the_core() -> None:
    said: dict[str, object] = {
        "temperature": 0.5,
        "top_p": 0.8,
        "top_k": 7,
        "min_p": 0.2,
        "seed": 3,
        "presence_penalty": 0.1,
        "frequency_penalty": -0.1,
        "repetition_penalty": 1.3,
        "min_tokens": 4,
        "allowed_token_ids": (97, 98),
    }
    sampling = chosen(
        **said,
        logit_bias={97: 1.5},
        bad_words=("ab",),
        stop_token_ids=(98,),
        ignore_eos=True,
        logprobs=2,
        prompt_logprobs=1,
    )

    assert {name: getattr(sampling, name) for name in said} == said
    assert sampling.logit_bias == ((97, 1.5),)
    assert sampling.bad_words
    assert sampling.stop_token_ids == (98,)
    assert (sampling.num_logprobs, sampling.num_prompt_logprobs) == (2, 1)
    assert {field.name for field in dataclasses.fields(GenerationParams)} == {
        *(name for name in SamplingParams.__struct_fields__ if not name.startswith("num_")),
        *("logprobs", "prompt_logprobs", "ignore_eos", "timeout_seconds"),
        *("stop", "include_stop_str_in_output", "skip_special_tokens"),  # of the text
        *("use_beam_search", "beam_width", "length_penalty", "early_stopping"),  # of a search
    } - {"pooling"}


def test_what_a_request_says_wins_over_the_models_makers_even_if_it_changes_nothing() -> None:
    silent, neutral = chosen(), chosen(min_p=0.0, repetition_penalty=1.0, top_k=0, temperature=0.0)

    assert (silent.min_p, silent.repetition_penalty, silent.top_k) == (0.05, 1.1, 20)
    assert (neutral.min_p, neutral.repetition_penalty, neutral.top_k) == (0.0, 1.0, None)
    assert (silent.temperature, neutral.temperature) == (0.6, 0.0)


def test_a_real_model_follows_choices_and_tells_its_scores() -> None:
    with Engine(make_config(max_model_len=256, max_num_blocks=64)) as engine:

        def answer(**choices: object) -> Result:
            engine.submit_request("The sun", of_tokens(8, temperature=0.0, **choices))
            (result,) = engine.run()
            return result

        plain = answer(logprobs=2, prompt_logprobs=1)
        third = plain.token_ids[2]
        stopped, kept = (
            answer(stop_token_ids=(third,), include_stop_str_in_output=is_kept)
            for is_kept in (False, True)
        )

        assert [len(score.top_ids) for score in plain.logprobs] == [2] * 8
        assert [score.rank for score in plain.logprobs] == [1] * 8
        assert len(plain.prompt_logprobs) == plain.num_prompt_tokens - 1
        assert answer(allowed_token_ids=(third,)).token_ids == (third,) * 8
        assert third not in answer(logit_bias={third: -100.0}).token_ids
        assert stopped.stop_reason == kept.stop_reason == third
        assert plain.output_text.startswith(kept.output_text)
        assert len(stopped.output_text) < len(kept.output_text)
        assert (stopped.logprobs, stopped.prompt_logprobs) == ((), ())


def test_an_aborted_request_gives_its_blocks_back_and_what_there_was() -> None:
    with Engine(configure()) as engine:
        request_id = engine.submit_request("Hello", of_tokens(50))
        for _ in range(4):
            engine.step()
        result = engine.abort(request_id)
        assert result is not None
        assert (result.finish_reason, len(result.output_text)) == ("abort", 4)
        assert engine.abort(request_id) is None
        assert not engine.has_work
        assert engine.core.stats().blocks.held == 0


@pytest.mark.parametrize(
    ("prompt", "params", "message"),
    [
        ("", GenerationParams(), "prompt: must not be empty"),
        ("x" * 300, GenerationParams(), "prompt: 300 tokens leave no room"),
        ("x", of_tokens(257), "max_tokens: 257 is more than the 256 tokens"),
        ([1, -1], GenerationParams(), "token ids are at least 0"),
        ([10**6], GenerationParams(), "token id 1000000 is outside the vocabulary"),
        ("x", of_tokens(5, min_tokens=6), "min_tokens: 6 is more than the 5 tokens"),
        ("x", of_tokens(5, logit_bias={10**6: 1.0}), "logit_bias: '1000000' is no token id"),
        ("x", of_tokens(5, allowed_token_ids=(10**6,)), "allowed_token_ids: token id 1000000"),
        ("x", of_tokens(5, stop_token_ids=(10**6,)), "stop_token_ids: ids are below"),
        ("\ud800", GenerationParams(), "lone surrogate"),
    ],
)
def test_a_bad_request_is_refused_and_harms_no_other(
    prompt: str | list[int], params: GenerationParams, message: str
) -> None:
    with Engine(configure()) as engine:
        engine.submit_request("good", of_tokens(5))
        with pytest.raises(RequestError, match=message):
            engine.submit_request(prompt, params)
        assert [result.is_success for result in engine.run()] == [True]


@pytest.mark.parametrize(
    "choice",
    [
        {"max_tokens": 0},
        {"temperature": -1.0},
        {"temperature": float("nan")},
        {"top_p": 0.0},
        {"top_k": -1},
        {"stop": ("",)},
        {"min_p": 1.5},
        {"presence_penalty": float("nan")},
        {"frequency_penalty": -3.0},
        {"repetition_penalty": 0.0},
        {"logit_bias": {-1: 1.0}},
        {"logit_bias": {1: 101.0}},
        {"allowed_token_ids": (-1,)},
        {"bad_words": ("",)},
        {"min_tokens": -1},
        {"stop_token_ids": (-1,)},
        {"logprobs": 21},
        {"prompt_logprobs": -1},
        {"timeout_seconds": 0.0},
    ],
)
def test_wrong_choices_are_named(choice: dict[str, object]) -> None:
    with pytest.raises(RequestError, match="but accepts") as raised:
        GenerationParams(**choice)  # type: ignore[arg-type]
    assert raised.value.parameter == next(iter(choice))


def test_more_than_may_wait_are_refused() -> None:
    with Engine(configure(max_num_seqs=1, max_waiting_requests=1)) as engine:
        engine.submit_request("a", of_tokens(5))
        engine.step()
        engine.submit_request("b", of_tokens(5))
        with pytest.raises(RequestError):
            engine.submit_request("c", of_tokens(5))
        assert len(engine.run()) == 2


@pytest.mark.parametrize("is_by_steps", [True, False])
def test_a_stall_is_told_once_until_there_is_progress(
    caplog: pytest.LogCaptureFixture, is_by_steps: bool
) -> None:
    watch = StallWatch(max_steps=3 if is_by_steps else 10**6, max_seconds=3.0)
    now = 0.0
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            watch.note(len(caplog.records) + 7, now, has_work=True)
            for _ in range(6):
                now += 0.0 if is_by_steps else 1.0
                watch.note(watch._progress or 0, now, has_work=True)
            assert watch.is_stalled
        assert len(caplog.records) == 2
        watch.note(watch._progress or 0, now, has_work=False)
    assert not watch.is_stalled
    assert "no progress for 3 steps" in caplog.text


async def test_streams_share_the_steps_and_give_what_run_gives() -> None:
    with Engine(configure()) as engine:
        prompts = ["Hello", "world", "again"]
        for prompt in prompts:
            engine.submit_request(prompt, of_tokens(20))
        whole = [result.output_text for result in engine.run()]

        async def read(prompt: str) -> str:
            return "".join([piece async for piece in engine.stream(prompt, of_tokens(20))])

        assert await asyncio.gather(*map(read, prompts)) == whole
        assert not engine.has_work


async def test_leaving_a_stream_early_frees_its_blocks() -> None:
    with Engine(configure()) as engine:
        stream = engine.stream("Hello", of_tokens(200))
        async for _ in stream:
            break
        await stream.aclose()
        assert not engine.has_work
        assert engine.core.stats().blocks.held == 0
        pieces = [piece async for piece in engine.stream("Hello", of_tokens(5))]
        assert len("".join(pieces)) == 5


def test_settings_are_checked_by_name() -> None:
    with pytest.raises(ConfigError, match=r'unknown setting "max_num_seq"; did you mean max_num_s'):
        make_config(max_num_seq=3)
    with pytest.raises(ConfigError, match="block_size is 17, but accepts one of 16, 32, 64"):
        make_config(block_size=17)
    with pytest.raises(ConfigError, match="command answers through the server alone"):
        Engine(make_config(command="cat"))


def test_a_closed_engine_says_so_and_closing_again_is_fine() -> None:
    engine = Engine(configure())
    engine.close()
    engine.close()
    with pytest.raises(EngineDeadError, match="the engine was closed: make a new one"):
        engine.submit_request("Hello")


def test_the_names_are_there_and_importing_them_brings_no_torch() -> None:
    assert {quire_engine.Engine, quire_engine.Result} == {Engine, Result}
    with pytest.raises(AttributeError, match="no attribute 'engine_of_dreams'"):
        getattr(quire_engine, "engine_of_dreams")  # noqa: B009 - mypy knows that it is not there
    program = (
        "import sys, quire_engine; assert 'quire_engine.library' not in sys.modules\n"
        "from quire_engine import Engine; assert 'torch' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_search_gives_its_best_answer_whole() -> None:
    with Engine(configure(max_num_seqs=8)) as engine:
        beams = {"use_beam_search": True, "logprobs": 0}
        for width in (1, 4, 8):
            engine.submit_request("Hello", of_tokens(12, beam_width=width, **beams))
        results = engine.run()
        scores = [sum(score.logprob for score in result.logprobs) for result in results]
        assert scores == sorted(scores), "wider searches find no worse answers here"
        assert all(len(result.token_ids) == 12 for result in results)
        assert {result.finish_reason for result in results} == {"length"}

        stop = results[1].output_text[3:5]
        engine.submit_request("Hello", of_tokens(40, beam_width=4, stop=(stop,), **beams))
        (stopped,) = engine.run()
        assert stop not in stopped.output_text
        assert stopped.stop_reason in (stop, None)
        assert engine.core.stats().blocks.held == 0
        engine.core.check_invariants()


@pytest.mark.parametrize(
    ("name", "choices"),
    [
        ("beam_width", {"use_beam_search": True, "beam_width": 0}),
        ("beam_width", {"use_beam_search": True, "beam_width": 9}),
        ("beam_width", {"beam_width": 4}),
        ("top_p", {"use_beam_search": True, "top_p": 0.5}),
        ("length_penalty", {"use_beam_search": True, "length_penalty": 11.0}),
        ("early_stopping", {"use_beam_search": True, "early_stopping": "soon"}),
    ],
)
def test_a_search_that_contradicts_itself_is_refused(name: str, choices: dict[str, object]) -> None:
    with Engine(configure(max_num_seqs=8)) as engine, pytest.raises(RequestError) as refused:
        engine.submit_request("Hello", of_tokens(5, **choices))
    assert refused.value.parameter == name
