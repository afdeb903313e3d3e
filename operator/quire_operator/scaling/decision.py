"""What scaling decides, and what it remembers from one decision to the next.

Memory may be lost at any time: a decision with a new one keeps the replicas that there are, until
as much has been seen as it takes to know better.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from quire_operator.scaling.inputs import Capability, GatewayFigures

Action = Literal["Hold", "Start", "Up", "Down", "Move", "Zero", "Wake", "Limit"]
"""Hold: as it is. Start: the first replicas. Move: some come so that others can go.
Zero and Wake: to none, and from none. Limit: bounds of the spec made it."""

FindingCode = Literal[
    "CapacityUnknown",
    "DecisionFailed",
    "Infeasible",
    "MetricsStale",
    "NoMetrics",
    "PriceUnknown",
    "ProfilesDiffer",
    "ReplicasFail",
    "SloImpossible",
    "ShortOfGpus",
]


@dataclass(frozen=True, kw_only=True)
class Finding:
    """Something that people should know."""

    code: FindingCode
    message: str


@dataclass(frozen=True, kw_only=True)
class AcceleratorFigures:
    """What was computed of one accelerator, for metrics."""

    wanted: int
    """Replicas that the mix has of it."""
    requests_per_second: float | None
    """Of this traffic, that one replica serves within its promises at the target; None: not known.
    """
    tokens_per_second: float | None
    """Generated ones, of these."""
    load: float | None
    """Of all replicas that serve or will, planned; 1 is the target. None: it has none, or nothing
    is known."""
    binding: str
    """What runs out first: blocks, seats, step or first_token; empty: not known."""
    cost_per_hour: float | None = None
    """Of one replica, assumed where no price is known; None: it may not be used."""


@dataclass(frozen=True, kw_only=True)
class ServiceDecision:
    """What should be of one service."""

    key: str
    action: Action
    replicas: Mapping[str, int]
    """To be asked for now, by accelerator. In modes other than Auto as it is."""
    wanted: Mapping[str, int]
    """Where that leads to, once all that is asked for is there. In Recommend: what Auto would do.
    """
    leaving: Mapping[str, int] = field(default_factory=dict)
    """Replicas that stay for now, of accelerators that the spec has no more."""
    victims: tuple[str, ...] = ()
    """Replicas that go, so that what is there becomes `replicas`: to be drained first."""
    traffic_shares: Mapping[str, float] = field(default_factory=dict)
    """Parts of the tokens by accelerator; empty: gateways choose alone."""
    reason: str
    """In a sentence."""
    inputs: Mapping[str, str] = field(default_factory=dict)
    """The figures behind it, for people."""
    findings: tuple[Finding, ...] = ()
    are_metrics_fresh: bool = True
    short_since: Mapping[str, float] = field(default_factory=dict)
    """Accelerators that found no node in time, and since when."""
    accelerators: Mapping[str, AcceleratorFigures] = field(default_factory=dict)
    requests_per_second: float | None = None
    """New ones, as estimated now; None: not known."""
    pressure: float | None = None
    """Mean of the ready replicas, weighted by what they can do; None: not known."""
    binding: str = ""
    """The term of pressure that binds most of them; empty: not known."""
    oldest_input_seconds: float | None = None
    """Age of the oldest of what gateways and ready replicas told; None: nothing was heard."""

    @property
    def is_change(self) -> bool:
        """Whether replicas are asked for otherwise than before."""
        return self.action != "Hold"


@dataclass(frozen=True, kw_only=True)
class Decision:
    """What should be of all services."""

    services: tuple[ServiceDecision, ...]
    """In the order of the inputs."""

    def of(self, key: str) -> ServiceDecision:
        """Return that of one service."""
        return next(one for one in self.services if one.key == key)


@dataclass(frozen=True, kw_only=True)
class Sample:
    """New requests of one interval."""

    at: float
    """Its end."""
    seconds: float
    arrivals: tuple[float, ...]
    """By prompt bucket."""


@dataclass(frozen=True, kw_only=True)
class Part:
    """What was asked in a part of the stabilization window."""

    at: float
    """End of the part."""
    seconds: float
    arrivals: tuple[float, ...]
    """Requests by prompt bucket; those that stay longer than computed count as more."""


@dataclass(frozen=True, kw_only=True)
class Occupied:
    """Requests that the taken blocks and seats stand for, with those of the last minute."""

    at: float
    requests_per_second: float
    """What replicas do at the target that are as full."""
    able: Mapping[str, float] = field(default_factory=dict)
    """Requests per second of one replica at the target, by accelerator, that this was computed by.
    """


@dataclass(frozen=True, kw_only=True)
class Shortage:
    """An accelerator that found no node in time."""

    since: float
    until: float
    """It limits what is asked for until then; later it says how often that was in vain."""
    num_tries: int = 1
    """That found no node, one after another; 0: none since some was freed, or since more had one.
    """
    found_with: tuple[str, float] | None = None
    """What its pods were made of, and how long they waited; None: not known."""
    num_had: int = 0
    """Its replicas that had a node, the most until it was tried again."""
    reach: int | None = None
    """GPUs of its products that no other of our services had; see `fewest_free`."""
    fewest_free: int | None = None
    """GPUs of its products that our replicas do not have, the fewest since then; None: nobody has
    counted them yet."""
    num_freed: int = 0
    """How many more there are now."""


@dataclass(frozen=True, kw_only=True)
class Failure:
    """An accelerator whose replicas failed before any was ready."""

    num_tries: int
    """That failed, one after another; 0: none with what pods are made of now."""
    until: float
    """None is added before."""
    made_of: str = ""
    """What its pods were made of."""
    replicas: frozenset[str] = frozenset()
    """Those of the last try that failed, as far as they are there."""


@dataclass(frozen=True, kw_only=True)
class Caution:
    """How long nothing is taken away after what was taken away was needed again."""

    windows: float = 0.5
    """In stabilization windows, above 1; less: it was never so. 1: it was so once, which may be
    chance."""
    changed_at: float = 0.0
    """When that was changed, or 0."""
    taken_at: float | None = None
    """When replicas were taken away for the last time, unless that was found to be wrong."""
    kept: tuple[float, float] = (0.0, 0.0)
    """Promises met and missed since they were last judged; to refused requests none was kept."""
    judged_at: float = 0.0
    """When that was, or 0."""
    has_broken: bool = False
    """Whether more than may be were missed then."""

    def set_back(self, now: float) -> "Caution":
        """The same where the clock was set back."""
        taken_at = None if self.taken_at is None else min(self.taken_at, now)
        return replace(
            self,
            taken_at=taken_at,
            changed_at=min(self.changed_at, now),
            judged_at=min(self.judged_at, now),
        )


@dataclass(frozen=True, kw_only=True)
class Answers:
    """Requests that were answered; old ones fade."""

    ended: tuple[tuple[float, ...], ...] = ()
    """Requests by length of prompt and then of output."""
    tokens: tuple[float, float, float] = (0.0, 0.0, 0.0)
    """Prompt, output and cached tokens of these."""


@dataclass(frozen=True, kw_only=True)
class ServiceMemory:
    """What is remembered of one service."""

    since: float
    """Since when it has been watched without a gap."""
    counts: Mapping[str, GatewayFigures] = field(default_factory=dict)
    """Newest counts by gateway."""
    samples: tuple[Sample, ...] = ()
    """The last minutes."""
    recent: Answers = Answers()
    lasting: Answers = Answers()
    """The same, and older ones too."""
    are_others: bool = False
    """Whether prompts that come differ from those that were answered."""
    parts: tuple[Part, ...] = ()
    """Of the stabilization window."""
    last_request_at: float
    rising_since: float | None = None
    """Since when more has been wanted."""
    pressed_since: float | None = None
    """Since when pressure has been too high."""
    occupied: Occupied | None = None
    unheard_since: Mapping[str, float] = field(default_factory=dict)
    """Ready replicas that say nothing, and since when, as far as that is known."""
    short: Mapping[str, Shortage] = field(default_factory=dict)
    """By accelerator."""
    retried: Mapping[str, Shortage] = field(default_factory=dict)
    """By accelerator: those that were short, and may be asked for again."""
    failures: Mapping[str, Failure] = field(default_factory=dict)
    """By accelerator."""
    correction: float = 1.0
    """By how much replicas do less than their profiles say, as kept promises show."""
    kept: tuple[float, float] = (0.0, 0.0)
    """Promises met and missed since the correction was last looked at."""
    corrected_at: float = 0.0
    caution: Caution = Caution()
    added_at: float | None = None
    """When replicas were asked for the last time: they are not given up before they have served."""
    relied_on: Mapping[str, int] = field(default_factory=dict)
    """Replicas that served or were to come when gateways were heard last, by accelerator."""
    better_since: float | None = None
    """Since when other replicas would have served the same for less."""
    shares: Mapping[str, float] = field(default_factory=dict)
    """As told last."""
    capabilities: Mapping[str, Capability] = field(default_factory=dict)
    """As replicas measured themselves, by accelerator: kept when none is left."""
    failure: str = ""
    """Why the last decision failed; empty: it did not."""


@dataclass(frozen=True, kw_only=True)
class ScalingMemory:
    """What is remembered of all services."""

    services: Mapping[str, ServiceMemory] = field(default_factory=dict)
    at: float | None = None
    """Time of the newest decision."""
