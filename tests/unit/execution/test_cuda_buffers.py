"""Row memory, input packing and graph widths of the CUDA executor, on a CPU."""

from typing import Any

import numpy as np
import pytest
import torch

from quire_engine.execution.base import AppendedBlocks, Batch, StartedRow
from quire_engine.execution.cuda.buckets import (
    MAX_PROMPTS,
    PromptShape,
    PromptShapes,
    first_widths,
    graph_widths,
    width_for,
)
from quire_engine.execution.cuda.chunk_inputs import NOBODY, ChunkArrays, place_chunks
from quire_engine.execution.cuda.inputs import InputBuffers
from quire_engine.execution.cuda.platform import Platform
from quire_engine.execution.cuda.row_memory import RowMemory
from quire_engine.protocol.sampling import SamplingParams
from tests.unit.execution.cuda_cases import tiny_spec

CPU = Platform(torch.device("cpu"), torch.float32)
SAMPLING = SamplingParams(max_tokens=9, temperature=0.5, top_k=7, top_p=0.25)


def make_rows() -> RowMemory:
    return RowMemory(CPU, num_rows=3, max_model_len=100, block_size=16)


def ints(*values: int) -> np.ndarray:
    return np.array(values, np.int32)


def deliver(rows: RowMemory) -> None:
    """What the device does with the changes."""
    indices, values = rows.changes()
    rows._memory[torch.from_numpy(indices).long()] = torch.from_numpy(values)
    rows.forget_changes()


def test_a_started_row_is_its_table_and_its_sampling() -> None:
    rows = make_rows()
    rows.apply(Batch(started=[StartedRow(1, [4, 5, 6], [9, 8], SAMPLING, 3, -2)]))
    deliver(rows)
    assert rows.tables[1, :3].tolist() == [9, 8, 0]
    words = rows.state.view(4, 8)[1]
    assert words[:3].view(torch.float32).tolist() == [0.5, 0.25, 0.0]
    assert words[3] == 7
    assert words[4:6].view(torch.int64).tolist() == [-2]
    assert rows.tokens[1, :3].tolist() == [4, 5, 6]
    assert rows.truncates.tolist() == [False, True, False, False]
    assert not rows.tables[[0, 2, 3]].any()


def test_the_last_change_of_an_entry_wins() -> None:
    rows = make_rows()
    rows.apply(Batch(started=[StartedRow(0, [1], [5, 6], SAMPLING, 1, 0)]))
    rows.apply(Batch(appended=[AppendedBlocks(0, 1, [7, 3])]))
    deliver(rows)
    assert rows.tables[0, :3].tolist() == [5, 7, 3]
    assert len(rows.changes()[0]) == 0


def test_changes_stay_until_they_are_on_their_way() -> None:
    rows = make_rows()
    rows.apply(Batch(appended=[AppendedBlocks(2, 0, [4])]))
    assert rows.changes()[1].tolist() == rows.changes()[1].tolist() == [4]


def test_collected_tokens_do_not_overwrite_a_later_requests_prompt() -> None:
    rows = make_rows()
    rows.apply(Batch(started=[StartedRow(0, [1, 2, 3], [5], SAMPLING, 3, 0)]))
    rows.remember(ints(0, 0, 1), ints(2, 3, 100), ints(70, 71, 72))
    assert rows.tokens[0, :4].tolist() == [1, 2, 3, 71]


def test_decode_arrays_are_padded_at_fixed_places() -> None:
    buffers = InputBuffers(CPU, max_width=6, capacity=200)
    buffers.begin()
    buffers.place_decodes(ints(2, 0), ints(31, 7), ints(-1, 5), width=4, padding_row=9)
    behind = buffers.place(ints(1, 2, 3))
    buffers.send()
    step = buffers.decode_tensors(4, truncates=False)
    assert step.token_rows.tolist() == [2, 0, 9, 9]
    assert step.positions.tolist() == [31, 7, 0, 0]
    assert step.given.tolist() == [-1, 5, 0, 0]
    assert step.context_lens.tolist() == [32, 8, 1, 1]
    assert step.cu_seqlens.tolist() == [0, 1, 2, 3, 4]
    assert behind.tolist() == [1, 2, 3]
    assert step.sample_rows is step.seq_rows


MIXED = ChunkArrays(
    rows=ints(2, 0, 1, 3),
    starts=ints(8, 4, 10, 0),
    counts=ints(1, 1, 3, 2),
    samples=np.array([True, True, False, True]),
    num_decodes=2,
)


def test_a_mixed_step_gives_prompts_tokens_and_leaves_sampled_ones_to_the_device() -> None:
    buffers = InputBuffers(CPU, max_width=4, capacity=400)
    tokens = np.arange(400, dtype=np.int32).reshape(4, 100)
    buffers.begin()
    step = place_chunks(buffers, tokens, ints(5, 13, 8, 2), MIXED, truncates=False)
    buffers.send()
    assert step.token_rows.tolist() == [2, 0, 1, 1, 1, 3, 3]
    assert step.positions.tolist() == [8, 4, 10, 11, 12, 0, 1]
    assert step.given.tolist() == [-1, 4, 110, 111, 112, 300, 301]
    assert step.context_lens.tolist() == [9, 5, 13, 2]
    assert step.cu_seqlens.tolist() == [0, 1, 2, 5, 7]
    assert step.sample_rows.tolist() == [2, 0, 3]
    assert step.sample_positions.tolist() == [9, 5, 2]
    assert step.sample_index is not None
    assert step.sample_index.tolist() == [0, 1, 6]
    assert all(t.storage_offset() % 4 == 0 for t in (step.positions, step.cu_seqlens))


def test_a_mixed_step_is_padded_where_its_graph_looks() -> None:
    buffers = InputBuffers(CPU, max_width=4, capacity=400)
    tokens = np.arange(400, dtype=np.int32).reshape(4, 100)
    places = []
    for chunks in (NOBODY, MIXED):
        buffers.begin()
        step = place_chunks(
            buffers,
            tokens,
            ints(5, 13, 8, 2),
            chunks,
            truncates=False,
            shape=PromptShape(num_tokens=10, num_decodes=4),
            padding_row=9,
        )
        buffers.send()
        places.append([t.data_ptr() for t in (step.given, step.cu_seqlens, step.sample_rows)])
    assert places[0] == places[1]
    prompts = MAX_PROMPTS - 2
    assert step.token_rows.tolist() == [2, 0, 1, 1, 1, 3, 3, 9, 9, 9]
    assert step.positions.tolist() == [8, 4, 10, 11, 12, 0, 1, 0, 0, 0]
    assert step.given.tolist() == [-1, 4, 110, 111, 112, 300, 301, 0, 0, 0]
    assert step.seq_rows.tolist() == [2, 0, 9, 9, 1, 3] + [9] * prompts
    assert step.context_lens.tolist() == [9, 5, 1, 1, 13, 2] + [1] * prompts
    assert step.cu_seqlens.tolist() == [0, 1, 2, 2, 2, 5, 7] + [7] * prompts
    assert step.sample_rows.tolist() == [2, 0, 3] + [9] * (prompts + 3)
    assert step.sample_index is not None
    assert step.sample_index.tolist() == [0, 1, 6] + [0] * (prompts + 3)
    assert (step.num_decodes, step.max_prompt_tokens) == (4, 10)


def test_a_buffer_of_the_ring_waits_for_the_steps_in_flight() -> None:
    buffers = InputBuffers(CPU, max_width=4, capacity=64)
    seen = []
    for _ in range(6):  # three steps, and what is captured behind each
        buffers.begin()
        seen.append(buffers._turn)
    assert len(set(seen)) == 6


@pytest.mark.parametrize("most", [1, 3, 8, 40, 256, 300])
def test_every_number_of_rows_has_a_width(most: int) -> None:
    widths = graph_widths(most)
    assert list(widths) == sorted(set(widths))
    assert widths[-1] == most
    for count in range(1, most + 1):
        width = width_for(widths, count)
        assert width is not None
        assert count <= width < count + (32 if count > 256 else 8)
    assert width_for(widths, most + 1) is None


def test_the_widest_graph_comes_first() -> None:
    assert graph_widths(256)[:7] == (1, 2, 4, 8, 16, 24, 32)
    assert first_widths(graph_widths(256)) == (256, 1, 8)
    assert first_widths(graph_widths(8)) == (8, 1)
    assert first_widths((1,)) == (1,)


QWEN = {"hidden_size": 1024, "intermediate_size": 3072, "num_heads": 16, "num_kv_heads": 8}
LLAMA = {"hidden_size": 4096, "intermediate_size": 14336, "num_heads": 32, "num_kv_heads": 8}


def shapes(sizes: dict[str, int], *, max_num_seqs: int = 256, max_num_tokens: int = 8192) -> Any:
    spec = tiny_spec(head_dim=128, **sizes)
    return PromptShapes(spec, max_num_seqs=max_num_seqs, max_num_tokens=max_num_tokens)


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ((1, 0, 1), (64, 0)),
        ((64, 0, 1), (64, 0)),
        ((65, 1, 16), (128, 16)),
        ((90, 70, 2), (128, 128)),
        ((258, 257, 1), None),
        ((300, 200, 17), None),
        ((4097, 0, 1), None),
    ],
)
def test_a_step_with_prompts_takes_the_narrowest_shape(
    step: tuple[int, int, int], expected: tuple[int, int] | None
) -> None:
    found = shapes(QWEN).find(*step)
    assert found == (expected and PromptShape(*expected))


def test_a_large_models_steps_are_padded_while_they_are_short() -> None:
    large = shapes(LLAMA)
    assert large.find(300, 0, 1) == PromptShape(384, 0)
    assert large.find(600, 0, 1) is None
    assert large.find(2048, 100, 3) == PromptShape(2048, 128)
    assert large.find(4096, 0, 2) is None
    assert large.widest == PromptShape(2048, 256)


@pytest.mark.parametrize(("num_seqs", "num_tokens"), [(1, 1), (3, 40), (512, 512), (300, 8192)])
def test_every_shape_holds_what_is_padded_to_it(num_seqs: int, num_tokens: int) -> None:
    some = shapes(QWEN, max_num_seqs=num_seqs, max_num_tokens=num_tokens)
    known = some.all()
    assert some.widest == known[0]
    for tokens in range(1, min(num_tokens, 4096) + 1, 7):
        for decodes in range(min(num_seqs, tokens)):
            shape = some.find(tokens, decodes, 1)
            assert shape in known
            assert shape.num_tokens >= max(tokens, shape.num_decodes)
            assert shape.num_decodes >= decodes
