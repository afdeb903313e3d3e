from hypothesis import given
from hypothesis import strategies as st

from quire_engine.calibration.trials import MAX_STEPS_PER_VISIT, Trial, choose_trials, decode_trial
from quire_engine.profiles.step_time import count_pairs
from quire_engine.protocol.messages import ModelFacts

H100 = ModelFacts(max_model_len=4096, vocab_size=128256, num_blocks=27490, block_size=16)


@given(
    st.integers(2, 1 << 17),
    st.integers(1, 1 << 16),
    st.sampled_from((16, 32, 64)),
    st.integers(1, 1024),
    st.integers(0, 1 << 14),
)
def test_every_trial_fits_whatever_the_engine_holds(
    max_model_len: int, num_blocks: int, block_size: int, max_num_seqs: int, more: int
) -> None:
    facts = ModelFacts(
        max_model_len=max_model_len, vocab_size=100, num_blocks=num_blocks, block_size=block_size
    )
    most_tokens = max_num_seqs + more
    for trial in choose_trials(
        facts, max_num_seqs=max_num_seqs, max_num_batched_tokens=most_tokens
    ):
        assert 0 < trial.num_rows <= max_num_seqs
        assert 0 < trial.num_decodes + trial.prefill_tokens <= most_tokens
        assert trial.num_blocks(block_size) <= num_blocks
        if trial.num_decodes:
            assert 1 <= trial.context <= max_model_len - MAX_STEPS_PER_VISIT
        for start, count in trial.prompts:
            assert count > 0
            assert start + count < max_model_len


def test_they_reach_from_one_request_to_a_full_engine() -> None:
    trials = choose_trials(H100, max_num_seqs=256, max_num_batched_tokens=8192)
    decodes = [trial for trial in trials if not trial.prompts]

    assert {1, 4, 16, 64, 256} <= {trial.num_decodes for trial in decodes}
    assert min(trial.context for trial in decodes) == 64
    assert max(trial.context for trial in decodes) == 4096 - MAX_STEPS_PER_VISIT
    assert max(trial.prefill_tokens for trial in trials) == 8192
    assert any(trial.num_decodes == 255 and trial.prompts for trial in trials)
    assert any(start for trial in trials for start, _ in trial.prompts)
    assert len(trials) == len(set(trials))


def test_the_work_of_a_trial_is_that_of_its_chunks() -> None:
    trial = Trial(4, 100, ((0, 32), (64, 16)))

    assert trial.prefill_tokens == 48
    assert trial.prefill_pairs == count_pairs(0, 32) + count_pairs(64, 16)
    assert trial.num_rows == 6
    assert trial.num_blocks(16) == 4 * 8 + 2 + 5


@given(st.integers(1, 300), st.integers(1, 5000), st.integers(1, 6000))
def test_contexts_are_spread_around_their_mean(
    num_decodes: int, context: int, longest: int
) -> None:
    trial = decode_trial(num_decodes, min(context, longest), longest)
    contexts = trial.contexts

    assert len(contexts) == num_decodes
    assert min(contexts) >= 1
    assert max(contexts) <= longest
    assert abs(sum(contexts) / num_decodes - trial.context) <= 1
    assert trial.context_tokens(3) == sum(contexts) + 3 * num_decodes
    if num_decodes > 1 and 7 * context <= 4 * longest and context >= 4:
        assert max(contexts) - min(contexts) >= context
