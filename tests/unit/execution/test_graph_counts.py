"""How often decode steps ran as a graph."""

import torch

from quire_engine.execution.cuda.graphs import DecodeGraphs
from quire_engine.execution.cuda.platform import Platform


class Graph:
    """Stands for a captured graph."""

    num_replays = 0

    def replay(self) -> None:
        self.num_replays += 1


def test_steps_with_and_without_a_graph_are_counted() -> None:
    computed: list[tuple[int, bool]] = []
    graphs = DecodeGraphs(
        Platform(torch.device("cpu"), torch.float32),
        lambda width, truncates: computed.append((width, truncates)),
        lambda: None,
        max_num_seqs=8,
    )
    graph = Graph()
    graphs._graphs[False][4] = graph  # type: ignore[assignment]  # captured, where there is a GPU
    graphs.run(4, truncates=False)
    graphs.run(4, truncates=False)
    graphs.run(4, truncates=True)
    graphs.run(8, truncates=False)

    assert (graphs.num_hits, graphs.num_misses) == (2, 2)
    assert graph.num_replays == 2
    assert computed == [(4, True), (8, False)]
