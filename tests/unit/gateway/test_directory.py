"""Which service a name means at a host."""

from typing import Any

import pytest

from quire_gateway.routing.access import Access
from quire_gateway.serving.directory import Directory
from quire_gateway.workers.services import WorkerService
from tests.unit.gateway.builders import routing


def known(**fields: Any) -> WorkerService:
    """A service without engines."""
    document = routing(**fields)
    return WorkerService(document, Access(document, lambda seconds: seconds))


def found(directory: Directory[WorkerService], model: str, host: str) -> str | None:
    """Name of the service, if there is one."""
    one = directory.find(model, host)
    return one.document.name if one else None


@pytest.mark.parametrize("address", ["victim.t4.svc.cluster.local", "victim.t4.svc", "victim.t4"])
def test_no_ingress_takes_the_address_of_another_service(address: str) -> None:
    thief = known(namespace="evil", name="thief", model_names=["thief", "victim"], host=address)
    victim = known(namespace="t4", name="victim", model_names=["victim"])
    directory: Directory[WorkerService] = Directory()
    directory.arrange({one.document.key: one for one in (thief, victim)})

    assert found(directory, "victim", address) == "victim"
    assert found(directory, "thief", "thief.evil.svc") == "thief"


@pytest.mark.parametrize("address", ["10.0.0.1", "localhost", "quire-gateway", "[::1]"])
def test_no_ingress_takes_what_everybody_inside_asks_at(address: str) -> None:
    thief = known(namespace="evil", name="thief", model_names=["thief", "m"], host=address)
    victim = known(namespace="t4", name="victim", model_names=["m"])
    directory: Directory[WorkerService] = Directory()
    directory.arrange({one.document.key: one for one in (victim, thief)})

    assert not directory.has_host(address)
    assert found(directory, "m", address) == "victim"


def test_a_name_that_only_begins_like_an_address_is_a_host() -> None:
    own = known(namespace="t4", name="own", model_names=["m"], host="victim.t4.svcs.example")
    victim = known(namespace="t4", name="victim", model_names=["m"])
    directory: Directory[WorkerService] = Directory()
    directory.arrange({one.document.key: one for one in (victim, own)})

    assert found(directory, "m", "victim.t4.svcs.example") == "own"


def test_of_services_with_a_name_the_first_that_wanted_it_is_meant() -> None:
    host = "models.example.com"
    old = known(
        namespace="b",
        name="old",
        model_names=["old", "m"],
        host=host,
        claimed_at={"old": 1.0, "m": 1.0},
        host_claimed_at=9.0,
    )
    own = known(
        namespace="a",
        name="own",
        model_names=["m"],
        host=host,
        claimed_at={"m": 5.0},
        host_claimed_at=5.0,
    )
    directory: Directory[WorkerService] = Directory()
    directory.arrange({one.document.key: one for one in (old, own)})

    assert found(directory, "m", host) == "own"
    assert found(directory, "m", "quire-gateway") == "old"
    assert found(directory, "m", "own.a.svc") == "own"


def test_who_yields_a_name_inside_does_so_though_its_document_is_the_older_one() -> None:
    made_anew = known(namespace="a", name="first", model_names=["m"], claimed_at={"m": 9.0})
    older = known(
        namespace="b", name="later", model_names=["m"], claimed_at={"m": 5.0}, yields=["m"]
    )
    directory: Directory[WorkerService] = Directory()
    directory.arrange({one.document.key: one for one in (older, made_anew)})

    assert found(directory, "m", "quire-gateway.quire-system") == "first"
    assert found(directory, "m", "later.b.svc.cluster.local") == "later"
    directory.arrange({older.document.key: older})
    assert found(directory, "m", "quire-gateway.quire-system") == "later"
