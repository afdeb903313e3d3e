"""Who wanted a name first keeps it until it gives it up, however old the others are."""

import json
from datetime import timedelta

import pytest
from msgspec import to_builtins

from quire_operator.cluster.kinds import SERVICES
from quire_operator.cluster.store import Key, Store
from quire_operator.planner.claims import Standing
from quire_operator.planner.unread import of_unreadable
from quire_operator.reconciling.claims import NameClaims
from quire_operator.resource.reading import InvalidResourceError, read
from tests.unit.control.builders import L4, NOW
from tests.unit.control.plans import planned, said

HOST = "models.example.com"


class World:
    """An API server's services, and an operator that looks at them."""

    def __init__(self) -> None:
        self.store = Store()
        self.now = NOW + timedelta(days=30)
        self.woken: set[Key] = set()
        self.claims = NameClaims(self.store, self.woken.add)

    def restart(self) -> None:
        """Another operator, that knows what statuses say."""
        self.claims = NameClaims(self.store, self.woken.add)

    def write(
        self, key: str, *names: str, host: str = "", days: int = 0, look: bool = True
    ) -> None:
        """Make or edit a service, which was made so many days after the first."""
        namespace, name = key.split("/")
        old = self.store.get(SERVICES.kind, (namespace, name)) or {}
        ingress = {"ingress": {"host": host}, "access": {"public": True}} if host else {}
        model = {"source": "hf://a/b", "name": names[0], "aliases": list(names[1:])}
        body = {
            "apiVersion": "serving.quire.dev/v1alpha1",
            "kind": "InferenceService",
            "metadata": {
                "namespace": namespace,
                "name": name,
                "uid": key,
                "creationTimestamp": f"2026-01-{1 + days:02}T00:00:00Z",
                "resourceVersion": str(id(object())),
            },
            "spec": {"model": model, "accelerators": [L4], **ingress},
            "status": old.get("status", {}),
        }
        self.now += timedelta(milliseconds=1)
        self.store.put(SERVICES.kind, body)
        if look:
            self.stand(key)

    def stand(self, key: str) -> Standing:
        """One look."""
        namespace, name = key.split("/")
        body = self.store.get(SERVICES.kind, (namespace, name))
        assert body is not None
        standing = self.claims.stand(read(body), self.now)
        said = {"claims": to_builtins(standing.claims)}
        self.store.put(SERVICES.kind, {**body, "status": said})
        return standing

    def delete(self, key: str) -> None:
        namespace, name = key.split("/")
        self.store.drop(SERVICES.kind, (namespace, name))
        self.claims.forget((namespace, name))


@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("names", [("chat",), ("evil", "chat")])
def test_an_older_service_takes_no_name_over(names: tuple[str, ...], is_restarted: bool) -> None:
    world = World()
    world.write("team-b/evil", "evil")
    world.write("team-a/chat", "chat", host=HOST, days=9)
    world.write("team-b/evil", *names, host=HOST)
    if is_restarted:
        world.restart()

    assert world.stand("team-a/chat").name_owner is None
    assert world.stand("team-a/chat").inside_owners == {}
    taken = world.stand("team-b/evil")
    owners = {**taken.alias_owners, names[0]: taken.name_owner}
    assert owners["chat"] == "team-a/chat"


def test_the_same_without_a_host_is_told_and_is_no_fault() -> None:
    world = World()
    world.write("team-b/evil", "evil")
    world.write("team-a/chat", "chat", days=9)
    world.write("team-b/evil", "evil", "chat")

    assert world.stand("team-a/chat").inside_owners == {}
    standing = world.stand("team-b/evil")
    assert standing.inside_owners == {"chat": "team-a/chat"}
    made = planned(standing=standing)
    assert said(made, "Degraded")[:2] == ("False", "NameShared")
    assert "chat of team-a/chat" in said(made, "Degraded")[2]
    document = next(one for one in made.objects if one["metadata"]["name"] == "chat-routing")
    told = json.loads(document["data"]["routing.json"])
    assert told["claimed_at"]["evil"] < told["claimed_at"]["chat"]
    assert told["yields"] == ["chat"]  # though the other's document may be made anew any time


def test_a_host_that_is_taken_later_brings_no_older_right_to_a_name() -> None:
    world = World()
    world.write("team-b/chat", "chat")
    world.write("team-a/chat", "chat", host=HOST, days=9)
    world.write("team-b/chat", "chat", host=HOST)

    assert world.stand("team-a/chat").name_owner is None
    assert world.stand("team-b/chat").name_owner == "team-a/chat"
    # who has none of it at the host has none of it inside
    assert world.stand("team-a/chat").inside_owners == {}


def test_a_name_that_is_given_up_goes_to_who_waited_longest_and_wakes_it() -> None:
    world = World()
    for days, namespace in enumerate(("a", "b", "c")):
        world.write(f"{namespace}/chat", "chat", host=HOST, days=days)
    world.woken.clear()
    world.write("a/chat", "other", host=HOST)
    assert world.woken == {("b", "chat"), ("c", "chat")}
    assert world.stand("b/chat").name_owner is None
    assert world.stand("c/chat").name_owner == "b/chat"

    world.write("a/chat", "chat", host=HOST)  # back again, and last
    assert world.stand("a/chat").name_owner == "b/chat"
    world.delete("b/chat")
    assert world.stand("c/chat").name_owner is None
    assert world.stand("a/chat").name_owner == "c/chat"


def test_before_there_were_records_the_older_service_has_the_name() -> None:
    world = World()
    world.write("a/young", "chat", host=HOST, days=9, look=False)
    world.write("b/old", "chat", host=HOST, look=False)

    assert world.stand("a/young").name_owner == "b/old"
    assert world.stand("b/old").name_owner is None


def test_an_edit_that_no_operator_saw_counts_from_when_one_sees_it() -> None:
    world = World()
    world.write("b/old", "evil")
    world.write("a/young", "chat", host=HOST, days=9)
    world.write("b/old", "chat", host=HOST, look=False)
    world.restart()

    assert world.stand("b/old").name_owner == "a/young"
    assert world.stand("a/young").name_owner is None


@pytest.mark.parametrize("is_new", [False, True])
def test_who_comes_last_is_last_whatever_the_clock_says(is_new: bool) -> None:
    world = World()
    if not is_new:
        world.write("b/old", "evil", host=HOST)
    world.write("a/young", "other", host=HOST, days=9)
    world.write("a/young", "chat", host=HOST, days=9)
    world.now -= timedelta(days=40)  # set back, or that of another operator
    world.write("b/old", "chat", host=HOST)

    assert world.stand("b/old").name_owner == "a/young"
    assert world.stand("a/young").name_owner is None
    world.restart()
    assert world.stand("b/old").name_owner == "a/young"


def test_times_in_a_status_that_cannot_be_read_count_as_of_now() -> None:
    for strange in ("0000-01-01T00:00:00Z", "2026-01-01t00:00:00z", "2026-01-01T00:00:00+99:00"):
        world = World()
        world.write("b/old", "chat", host=HOST)
        world.write("a/young", "chat", host=HOST, days=9)
        body = world.store.get(SERVICES.kind, ("b", "old"))
        assert body is not None
        claims = {"names": [{"name": "chat", "since": strange}], "host": HOST, "hostSince": strange}
        short = {"name": "l4", "shortSince": strange}
        status = {"claims": claims, "accelerators": [short]}
        world.store.put(SERVICES.kind, {**body, "status": status})
        world.restart()

        assert world.stand("a/young").name_owner is None
        assert world.stand("b/old").name_owner == "a/young"
        assert read({**body, "status": status}).status.accelerators[0].short_since is None


def test_one_that_is_made_anew_under_its_name_has_no_older_rights() -> None:
    world = World()
    world.write("a/chat", "chat", host=HOST)
    world.write("b/chat", "chat", host=HOST, days=1)
    body = world.store.get(SERVICES.kind, ("a", "chat"))
    assert body is not None
    metadata = {
        **body["metadata"],
        "uid": "another",
        "creationTimestamp": "2026-01-20T00:00:00Z",
    }
    world.store.put(SERVICES.kind, {**body, "metadata": metadata, "status": {}})

    assert world.stand("a/chat").name_owner == "b/chat"


def test_a_status_that_is_not_understood_keeps_since_when_names_are_wanted() -> None:
    world = World()
    world.write("a/chat", "chat")
    body = world.store.get(SERVICES.kind, ("a", "chat"))
    assert body is not None
    strange = {**body, "status": {**body["status"], "replicas": "many"}}
    said_of_it = of_unreadable(strange, InvalidResourceError("so"), NOW)

    assert to_builtins(said_of_it.claims) == body["status"]["claims"]
