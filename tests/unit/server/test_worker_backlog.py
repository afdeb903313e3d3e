"""When a worker that does not read is taken for one that hangs."""

from quire_engine.workers.process import Backlog


def test_a_worker_that_reads_now_and_then_does_not_hang() -> None:
    backlog = Backlog()
    for second in range(0, 600, 20):
        assert not backlog.is_too_much(1 << 20, second)
        assert not backlog.is_too_much(0, second + 10)


def test_a_worker_that_has_not_read_for_long_hangs_however_little_it_was_told() -> None:
    backlog = Backlog()
    assert not backlog.is_too_much(0, 0.0)
    assert not backlog.is_too_much(1, 100.0)
    assert not backlog.is_too_much(1, 129.0)
    assert backlog.is_too_much(1, 131.0)


def test_a_worker_that_was_told_very_much_hangs_at_once() -> None:
    assert Backlog().is_too_much(9 << 20, 0.0)
