"""Names are asked for one by one, or by one list where there are many at a time."""

from typing import Any, cast

import pytest

from quire_operator.cluster.api import ClusterApi
from quire_operator.cluster.kinds import CONFIG_MAPS, SECRETS, Kind
from quire_operator.reconciling.strangers import Strangers


class Api:
    """Keeps names, as the API server does, and counts what it is asked."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.num_asked = {"one": 0, "all": 0}

    async def get_metadata(self, _kind: Kind, _namespace: str, name: str) -> dict[str, Any] | None:
        self.num_asked["one"] += 1
        return {"metadata": {"name": name}} if name in self.names else None

    async def metadata(self, _kind: Kind, _namespace: str) -> list[dict[str, Any]]:
        self.num_asked["all"] += 1
        return [{"metadata": {"name": name}} for name in self.names]


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def api() -> Api:
    return Api()


async def find(strangers: Strangers, name: str, since: float, kind: Kind = CONFIG_MAPS) -> bool:
    return await strangers.find(kind, ("models", name), since) is not None


async def test_hundreds_of_names_are_one_list(api: Api) -> None:
    strangers = Strangers(cast("ClusterApi", api), Clock())
    api.names = {"x7", "x300"}
    found = [name for name in map("x{}".format, range(500)) if await find(strangers, name, 90.0)]

    assert found == ["x7", "x300"]
    assert api.num_asked == {"one": 10, "all": 1}


async def test_a_list_has_all_that_was_there_when_the_service_was_seen(api: Api) -> None:
    clock = Clock()
    strangers = Strangers(cast("ClusterApi", api), clock)
    for index in range(20):
        assert not await find(strangers, f"x{index}", 90.0)
    clock.now += 1
    api.names = {"new"}

    assert await find(strangers, "new", clock.now)  # seen after the list: another one
    assert api.num_asked["all"] == 2


async def test_a_list_grows_old_and_few_names_are_asked_for_one_by_one_again(api: Api) -> None:
    clock = Clock()
    strangers = Strangers(cast("ClusterApi", api), clock)
    for index in range(20):
        await find(strangers, f"x{index}", 90.0)
    clock.now += 11
    api.names = {"x3"}

    assert await find(strangers, "x3", 90.0)
    assert api.num_asked == {"one": 11, "all": 1}


async def test_secrets_are_never_listed(api: Api) -> None:
    strangers = Strangers(cast("ClusterApi", api), Clock())
    for index in range(50):
        await find(strangers, f"x{index}", 90.0, SECRETS)
    assert api.num_asked == {"one": 50, "all": 0}
