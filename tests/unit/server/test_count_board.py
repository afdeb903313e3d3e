"""Counts in shared memory: summed over workers, kept when one dies, read while others write."""

import mmap

import pytest
from hypothesis import given
from hypothesis import strategies as st

from quire_engine.protocol import metric_names as names
from quire_engine.server.count_board import SEGMENT_BYTES, CountBoard, Gauge
from quire_engine.server.metrics import ServerMetrics

LABELS = st.tuples(st.sampled_from(("a", "b", "ä" * 9)), st.sampled_from(("x", "")))
ADDITIONS = st.lists(st.tuples(st.integers(0, 2), LABELS, st.integers(1, 5)), max_size=40)


def boards(num: int) -> list[CountBoard]:
    """One for each of so many workers, over the same memory."""
    memory = mmap.mmap(-1, num * SEGMENT_BYTES)
    return [CountBoard(memory, num_segments=num, own=own) for own in range(num)]


@given(ADDITIONS)
def test_every_worker_reads_the_sums_of_what_all_have_added(
    additions: list[tuple[int, tuple[str, str], int]],
) -> None:
    workers = boards(3)
    expected: dict[tuple[str, str], float] = {}
    for worker, labels, number in additions:
        workers[worker].open("n", labels, 1)[0] += number
        expected[labels] = expected.get(labels, 0.0) + number
        for reader in workers:
            found = {key: cells[0] for key, cells in reader.totals("n").items()}
            assert found == expected


def test_a_successor_goes_on_where_the_one_before_it_was_killed() -> None:
    memory = mmap.mmap(-1, 2 * SEGMENT_BYTES)
    CountBoard(memory, num_segments=2, own=1).open("n", ("a",), 2)[1] += 3
    successor = CountBoard(memory, num_segments=2, own=1)
    successor.open("n", ("a",), 2)[1] += 4

    assert CountBoard(memory, num_segments=2, own=0).totals("n") == {("a",): [0.0, 7.0]}


def test_metrics_of_several_names_do_not_mix() -> None:
    board = CountBoard.alone()
    board.open("n", (), 1)[0] = 1
    board.open("m", (), 3)[2] = 2

    assert board.totals("n") == {(): [1.0]}
    assert board.totals("m") == {(): [0.0, 0.0, 2.0]}
    assert board.totals("k") == {}


def test_labels_without_end_are_a_bug_that_is_told() -> None:
    board = CountBoard.alone()
    num_fitting = SEGMENT_BYTES // (8 * 1000)
    for number in range(num_fitting - 1):
        board.open("n", (str(number),), 990)

    with pytest.raises(RuntimeError, match="bug"):
        board.open("n", ("more",), 2000)


def test_what_a_dead_worker_had_begun_is_counted_as_aborted() -> None:
    workers = boards(2)
    dead, alive = (ServerMetrics("m", board) for board in workers)
    dead.open_sequences.add(3)
    dead.requests_in_flight.add(2)
    alive.requests_in_flight.add(1)
    dead.ended["stop"].add(5)

    dead.settle_dead()

    assert workers[1].totals(names.REQUEST_SUCCESS)["abort",] == [3.0]
    assert workers[1].totals(names.REQUEST_SUCCESS)["stop",] == [5.0]
    assert workers[1].totals(names.API_WORKER_RESTARTS) == {(): [1.0]}
    assert workers[1].gauges(Gauge.REQUESTS) == [0, 1]
    assert workers[1].gauges(Gauge.SEQUENCES) == [0, 0]
