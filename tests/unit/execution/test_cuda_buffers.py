"""Row memory, input packing and graph widths of the CUDA executor, on a CPU."""

import numpy as np
import pytest
import torch

from quire_engine.execution.base import AppendedBlocks, Batch, StartedRow
from quire_engine.execution.cuda.buckets import first_widths, graph_widths, width_for
from quire_engine.execution.cuda.inputs import InputBuffers, place_chunks
from quire_engine.execution.cuda.platform import Platform
from quire_engine.execution.cuda.row_memory import RowMemory
from quire_engine.protocol.sampling import SamplingParams

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


def test_a_mixed_step_gives_prompts_tokens_and_leaves_sampled_ones_to_the_device() -> None:
    buffers = InputBuffers(CPU, max_width=4, capacity=400)
    tokens = np.arange(400, dtype=np.int32).reshape(4, 100)
    buffers.begin()
    step = place_chunks(
        buffers,
        tokens,
        ints(2, 0, 1, 3),
        ints(8, 4, 10, 0),
        ints(1, 1, 3, 2),
        np.array([True, True, False, True]),
        num_decodes=2,
        num_given=ints(5, 13, 8, 2),
        truncates=False,
    )
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


def test_a_buffer_of_the_ring_waits_for_the_steps_in_flight() -> None:
    buffers = InputBuffers(CPU, max_width=4, capacity=64)
    seen = []
    for _ in range(4):
        buffers.begin()
        seen.append(buffers._turn)
    assert len(set(seen)) == 4


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
