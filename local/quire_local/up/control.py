"""The loop: observe, plan, make it so, say it.

Level-triggered like the operator: whatever happens only wakes the loop, which looks at everything
anew. Nothing here decides how many replicas there are: that is the operator's scaling and planner.
"""

import asyncio
import base64
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import msgspec
from msgspec import structs

from quire_engine.protocol.internal_token import internal_token
from quire_engine.protocol.messages import Thresholds
from quire_engine.protocol.state import EngineState
from quire_local.up.deployment import Member, next_step, observe, surge_and_gap
from quire_local.up.engine import Engine, Tools, hash_of
from quire_local.up.engine_command import EngineCommand, Surroundings, command_of
from quire_local.up.folder import write_private
from quire_local.up.gateway import GatewayProcess
from quire_local.up.inventory import Claim, Inventory
from quire_local.up.outlook import why_hopeless
from quire_local.up.resource_file import Key, Resources
from quire_local.up.scaling import PERIOD_SECONDS, LocalScaling
from quire_local.up.secrets import hub_token, see_secrets
from quire_operator.planner.documents import LIVE_KEY, ROUTING_KEY, TOKENS_KEY
from quire_operator.planner.engine_flags import thresholds
from quire_operator.planner.events import Event
from quire_operator.planner.last_engine import LastEngine, last_engine_from, told_of
from quire_operator.planner.names import ACCELERATOR_LABEL, live_config_name, routing_name
from quire_operator.planner.observed import Observed, engine_from
from quire_operator.planner.plan import Plan, plan
from quire_operator.planner.settings import PlannerSettings
from quire_operator.reconciling.scaling_reports import Report, SeenEngine, SeenService
from quire_operator.resource.reading import InferenceService
from quire_operator.resource.status import InferenceServiceStatus

Body = Mapping[str, Any]

FRESH_SECONDS = 10.0
"""An engine that was silent for so long is as if it had said nothing."""
_PATIENCE_SECONDS = 5.0
"""So long a new engine waits without a word for one that is ending; answers may take minutes."""
_SETTINGS = PlannerSettings(engine_image="", is_local=True, surge_patience_seconds=0.0)
"""Nothing brings GPUs here: an old engine makes room as soon as a new one finds none."""


@dataclass(frozen=True, kw_only=True)
class Given:
    """What a run was started with."""

    folder: Path
    inventory: Inventory
    claims: Mapping[str, Path]
    root_secret: bytes


class Control:
    """Makes services what they should be; belongs to one event loop."""

    def __init__(self, given: Given, gateway: GatewayProcess, tools: Tools) -> None:
        self._given = given
        self._gateway = gateway
        self._tools = tools
        self._resources = Resources(services={}, secrets={}, bodies={})
        self._generations: dict[Key, int] = {}
        self._deployments: dict[Key, dict[str, Body]] = {}
        """By service and accelerator, as planned last."""
        self._routing: dict[Key, dict[str, Any]] = {}
        self._config_maps: dict[Key, dict[str, Mapping[str, str]]] = {}
        self._number = 0
        self.engines: list[Engine] = []
        self.statuses: dict[Key, InferenceServiceStatus] = {}
        self.seen: dict[str, SeenEngine] = {}
        """What the gateway tells of engines, by address."""
        self.scaling = LocalScaling(given.inventory)
        self._report: Report | None = None
        """What the gateway said last, however long ago."""
        self._last_engines: dict[Key, LastEngine] = {}
        """What services have had: gateways predict by it while they have none."""
        self._is_scale_due = asyncio.Event()

    @property
    def services(self) -> Mapping[Key, InferenceService]:
        """Those that are asked for."""
        return self._resources.services

    @property
    def seen_services(self) -> list[SeenService]:
        """As the gateway tells of them."""
        return self._report.fleet.services if self._report is not None else []

    def engines_of(self, service: Key) -> list[Engine]:
        """Its engines, those that are ending too."""
        return [one for one in self.engines if one.service == service]

    def why_hopeless(self, service: Key) -> str | None:
        """Why a service that was never ready will not be; None while it may."""
        engines = self.engines_of(service)
        status = self.statuses[service]
        return why_hopeless(self.services[service], status, engines, self._given.inventory)

    def use(self, resources: Resources) -> None:
        """Make these from now on."""
        for key, service in resources.services.items():
            old = self._resources.services.get(key)
            if old is None or old.spec != service.spec:
                self._generations[key] = self._generations.get(key, 0) + 1
        self._resources = resources
        self._is_scale_due.set()
        for key in self.statuses.keys() - resources.services.keys():
            for several in (self.statuses, self._deployments, self._routing, self._config_maps):
                several.pop(key, None)
            self._last_engines.pop(key, None)
            self.scaling.forget(key)
            for engine in self.engines_of(key):
                engine.end()

    def look(self) -> list[tuple[Key, Event]]:
        """One look at everything; what it changes wakes the loop for the next."""
        self.engines = [one for one in self.engines if not one.is_gone]
        self._place()
        events: list[tuple[Key, Event]] = []
        for key, service in self.services.items():
            made = self._plan(service)
            self.statuses[key] = structs.replace(
                made.status, url=f"{self._gateway.url}/v1" if self._gateway.url else ""
            )
            self._apply(service, made)
            events += [(key, event) for event in made.events]
        self._place()
        self._gateway.tell([self._routed(key) for key in self._routing])
        return events

    async def listen(self) -> None:
        """Hear from the gateway what engines say, and tell engines limits that were moved."""
        fleet = await self._gateway.ask()
        if fleet is None:
            return
        self._report = Report(fleet=fleet, at=time.monotonic())
        self.seen = {one.address: one for service in fleet.services for one in service.engines}
        for engine in self.engines:
            state = self.fresh(engine)
            service = self.services.get(engine.service)
            if state is None or service is None or state.state is None or not engine.is_ready:
                continue
            limits = thresholds(service)
            if state.state.thresholds not in (None, limits):
                await self._tell_limits(engine, limits)

    async def scale_always(self) -> None:
        """Let replicas follow the traffic, for ever; at once when the resources are others."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(PERIOD_SECONDS):
                    await self._is_scale_due.wait()
            self._is_scale_due.clear()
            try:
                await self._scale_now()
            except Exception as error:  # noqa: BLE001 - a bug must not end engines that serve
                words = f"failed, and replicas stay as they are: {error!r}"
                self._tools.on_line("scaling", words)

    async def _scale_now(self) -> None:
        ordered = [key for key in self.services if self._deployments.get(key)]
        seen = [self._observe(self.services[key]) for key in ordered]
        room = {one.service.key: self._free_for(one.service) for one in seen}
        if await self.scaling.decide(seen, self._report, room):
            self._tools.on_change()

    def _free_for(self, service: InferenceService) -> frozenset[str]:
        """Accelerators that one more replica would find a GPU for, now."""
        inventory = self._given.inventory
        return frozenset(
            one.name
            for one in service.spec.accelerators
            if one.products
            and inventory.find(Claim(products=one.products, count=one.count), self._taken())
        )

    async def ask_gateway(self, path: str) -> httpx.Response | None:
        """What the gateway's management port answers; None while it does not."""
        return await self._gateway.tell_raw(path)

    async def stop(self) -> None:
        """End all engines; no request is there any more."""
        await asyncio.gather(*(engine.stop() for engine in self.engines))

    def token_of(self, engine: Engine) -> str:
        """What an engine knows its gateway and operator by."""
        return internal_token(self._given.root_secret, *engine.service, _SETTINGS.token_epoch)

    def _plan(self, service: InferenceService) -> Plan:
        return plan(self._observe(service), _SETTINGS, datetime.now(UTC))

    def _observe(self, service: InferenceService) -> Observed:
        engines = self.engines_of(service.key)
        known = structs.replace(
            service,
            uid="/".join(service.key),
            generation=self._generations[service.key],
            status=self.statuses.get(service.key, service.status),
        )
        states = {
            one.name: seen.state for one in engines if (seen := self.fresh(one)) and seen.state
        }
        last = self._last_engine(service.key, states.values())
        observed = Observed(
            service=known,
            deployments={
                name: observe(body, self._members(service.key, name, body))
                for name, body in self._deployments.get(service.key, {}).items()
            },
            pods=tuple(one.observed() for one in engines),
            nodes=self._given.inventory.nodes(),
            engines={name: engine_from(state) for name, state in states.items()},
            last_engine=last,
            secrets=see_secrets(service, self._resources.secrets),
            root_secret=self._given.root_secret,
        )
        return self.scaling.add_to(observed)

    def _last_engine(self, key: Key, states: Iterable[EngineState]) -> LastEngine | None:
        known = self._last_engines.get(key)
        found = next(filter(None, map(last_engine_from, states)), None)
        told = told_of(known, found, has_engines=found is not None)
        if told is not None:
            self._last_engines[key] = told
        return told

    def fresh(self, engine: Engine) -> SeenEngine | None:
        """What is heard of an engine, if that was lately."""
        seen = self.seen.get(engine.address)
        is_heard = seen is not None and seen.silent_seconds < FRESH_SECONDS
        return seen if is_heard and engine.is_ready else None

    def _members(self, service: Key, accelerator: str, body: Body) -> list[Member]:
        newest = hash_of(body["spec"]["template"])
        return [
            Member(
                name=one.name,
                is_current=one.template_hash == newest,
                is_ready=one.is_ready,
                number=one.number,
                is_chosen=one.name in self.scaling.victims,
            )
            for one in self.engines_of(service)
            if one.accelerator == accelerator and not one.is_ending
        ]

    def _apply(self, service: InferenceService, made: Plan) -> None:
        folder = self._folder(service.key)
        wanted: dict[str, Body] = {}
        maps = self._config_maps.setdefault(service.key, {})
        for body in made.objects:
            kind, name = body["kind"], body["metadata"]["name"]
            if kind == "Deployment":
                wanted[body["metadata"]["labels"][ACCELERATOR_LABEL]] = body
            elif kind == "ConfigMap":
                maps[name] = body["data"]
            elif kind == "Secret":
                write_private(folder / "tokens", base64.b64decode(body["data"][TOKENS_KEY]))
        write_private(folder / "live.json", maps[live_config_name(service.name)][LIVE_KEY])
        routing = maps[routing_name(service.name)][ROUTING_KEY]
        self._routing[service.key] = msgspec.json.decode(routing)
        write_private(folder / "hub-token", hub_token(service, self._resources.secrets))
        for engine in self.engines_of(service.key):
            if engine.accelerator not in wanted:
                engine.end()
        self._deployments[service.key] = wanted
        for accelerator, deployment in wanted.items():
            self._step(service.key, accelerator, deployment)

    def _step(self, service: Key, accelerator: str, body: Body) -> None:
        members = self._members(service, accelerator, body)
        surge, gap = surge_and_gap(body)
        step = next_step(body["spec"]["replicas"], members, surge=surge, gap=gap)
        for engine in self.engines_of(service):
            if engine.name in step.leaving:
                engine.end()
        for _ in range(step.num_new):
            self._number += 1
            made = Engine(
                service=service,
                accelerator=accelerator,
                template=dict(body["spec"]["template"]),
                number=self._number,
                name=f"{service[1]}-{accelerator}-{self._number}",
                tools=self._tools,
                make_command=self._command,
            )
            self.engines.append(made)
            self._tools.on_change()

    def _place(self) -> None:
        """Give nodes to engines that have none, those of the most important services first."""
        waiting = [one for one in self.engines if one.node is None and not one.is_ending]
        promised: list[tuple[str, int]] = []
        for engine in sorted(waiting, key=self._importance):
            if not engine.claim.count:
                engine.place("")
                continue
            node = self._given.inventory.find(engine.claim, self._taken())
            if node is not None:
                engine.place(node)
                self._tools.on_change()
                continue
            soon = self._given.inventory.find(engine.claim, [*self._kept(), *promised])
            if soon is None:
                why, may_room_help = self._why_no_room(engine)
                engine.place(None, why, may_room_help=may_room_help)
                continue
            promised.append((soon, engine.claim.count))
            if engine.age_seconds > _PATIENCE_SECONDS:
                engine.place(None, "there are enough, and who has them is ending its answers")

    def _why_no_room(self, engine: Engine) -> tuple[str, bool]:
        """And whether those that it is to replace have what it waits for."""
        replaced = [
            one
            for one in self.engines_of(engine.service)
            if one.accelerator == engine.accelerator
            and one.template_hash != engine.template_hash
            and one.number < engine.number
        ]
        staying = (
            (one.node, one.claim.count)
            for one in self.engines
            if one.node and not one.is_ending and one not in replaced
        )
        if self._given.inventory.find(engine.claim, staying) is not None:
            return "engines that are to be replaced have them, and make room one by one", True
        return self._given.inventory.explain(engine.claim), False

    def _taken(self) -> Iterator[tuple[str, int]]:
        for engine in self.engines:
            if engine.node and not engine.is_gone:
                yield engine.node, engine.claim.count

    def _kept(self) -> Iterator[tuple[str, int]]:
        """As `_taken`, once all that are ending have ended."""
        for engine in self.engines:
            if engine.node and not engine.is_ending:
                yield engine.node, engine.claim.count

    def _importance(self, engine: Engine) -> tuple[int, int]:
        service = self.services.get(engine.service)
        return (-service.spec.priority if service else 0), engine.number

    def _command(self, engine: Engine, port: int) -> EngineCommand:
        folder = self._folder(engine.service)
        around = Surroundings(
            live_config=folder / "live.json",
            internal_tokens=folder / "tokens",
            hub_token=folder / "hub-token",
            claims=self._given.claims,
            secrets=self._resources.secrets,
            config_maps=self._config_maps[engine.service],
            namespace=engine.service[0],
        )
        return command_of(engine.template, around, node=engine.node or "", port=port)

    def _folder(self, service: Key) -> Path:
        folder = self._given.folder.joinpath("services", *service)
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _routed(self, key: Key) -> dict[str, Any]:
        """A service's routing document with its engines: without a cluster there are no slices."""
        ready = [one for one in self.engines_of(key) if one.is_ready and not one.is_ending]
        places = [{"address": one.address, "accelerator": one.accelerator} for one in ready]
        return self._routing[key] | {"engines": places}

    async def _tell_limits(self, engine: Engine, limits: Thresholds) -> None:
        headers = {"authorization": f"Bearer {self.token_of(engine)}"}
        with suppress(httpx.HTTPError):  # it is told again as long as it keeps others
            await self._tools.http.put(
                f"http://{engine.address}/thresholds",
                content=msgspec.json.encode(limits),
                headers=headers | {"content-type": "application/json"},
            )
