"""No block of commands is left out silently."""

import re

from tests.docs.catalogue import AS_WRITTEN, ON_NODES, REASONS
from tests.docs.pages import ROOT, blocks_in

_TEST = re.compile(r"tests/[\w/]+(?:\.py)?")


def test_each_block_is_run_or_has_a_reason() -> None:
    there = {str(block) for block in blocks_in("sh", "console", "python")}
    known = [*AS_WRITTEN, *ON_NODES, *REASONS]
    assert set(known) == there
    assert len(known) == len(set(known)), "a block is in two of the lists"


def test_each_test_that_is_named_is_there() -> None:
    for reason in [*ON_NODES.values(), *REASONS.values()]:
        for path in _TEST.findall(reason):
            assert (ROOT / path).exists(), f"{reason}: there is no {path}"


def test_each_block_on_nodes_is_named_in_its_test() -> None:
    for block, test in ON_NODES.items():
        page, _, number = block.rpartition(":")
        assert f'blocks_of("{page}")[{number}]' in (ROOT / test).read_text("utf-8"), block
