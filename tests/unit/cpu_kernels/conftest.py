"""One team for each variant of the library; both are compiled once and kept in the cache."""

from __future__ import annotations

import shutil
from collections.abc import Iterator

import pytest

from quire_kernels.cpu import Team, load_library

VARIANTS = ("native", "portable")


@pytest.fixture(scope="session", params=VARIANTS)
def team(request: pytest.FixtureRequest) -> Iterator[Team]:
    if not any(shutil.which(name) for name in ("g++", "clang++", "c++")):
        pytest.skip("needs a C++ compiler on PATH")
    team = Team(2, load_library(portable=request.param == "portable"))
    yield team
    team.close()
