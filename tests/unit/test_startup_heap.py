"""What is there when a process is ready is not looked at again; what is garbage by then goes."""

import gc
import weakref

from quire_engine.startup_heap import freeze_startup_heap


class Node:
    """May be a part of a cycle."""

    def __init__(self) -> None:
        self.other: Node | None = None


def test_what_stays_is_left_out_of_collections_and_garbage_is_not_kept() -> None:
    kept, lost = Node(), Node()
    lost.other = lost
    ghost = weakref.ref(lost)
    del lost
    before = gc.get_threshold()
    try:
        freeze_startup_heap()
        assert ghost() is None
        assert not any(thing is kept for thing in gc.get_objects())
        assert all(now > then for now, then in zip(gc.get_threshold(), before, strict=True))
        later = Node()
        later.other = later
        ghost = weakref.ref(later)
        del later
        gc.collect()
        assert ghost() is None, "garbage of later on is no longer found"
    finally:
        gc.unfreeze()
        gc.set_threshold(*before)
