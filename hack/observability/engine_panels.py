"""Panels of what engines say of themselves."""

from hack.observability.panels import HERE, Panel, Query, rate, tail, total

BLOCKS = Panel(
    "Blocks by state",
    "short",
    "All KV blocks of each replica: held by requests, free with a cached prefix, and free without.",
    (
        Query(total("quire_blocks_held", "service, pod"), "held {{service}} {{pod}}"),
        Query(total("quire_blocks_cached", "service, pod"), "cached {{service}} {{pod}}"),
        Query(
            f"{total('quire_blocks_free', 'service, pod')} - "
            f"{total('quire_blocks_cached', 'service, pod')}",
            "free {{service}} {{pod}}",
        ),
    ),
    "stacked",
)
RESERVED = Panel(
    "Reserved, as a share of all blocks",
    "percentunit",
    "The peak of predicted blocks by which requests are admitted. Scaling aims at the service's"
    " memoryPressure.target; admission ends at memoryPressure.admission, which is 1 in Pressure.",
    (
        Query(
            f"{total('quire_blocks_reserved', 'service, pod')} / "
            f"{total('quire_blocks_capacity', 'service, pod')}",
            "{{service}} {{pod}}",
        ),
    ),
    edge=1,
)
PRESSURE = Panel(
    "Pressure by what binds",
    "percentunit",
    "How near the fullest replica is to each limit of admission: blocks, seats, time to the first"
    " token, time of a step.",
    (Query(f"max by (service, term) (quire_pressure{{{HERE}}})", "{{service}} {{term}}"),),
    edge=1,
)
ADMISSION = Panel(
    "Admission decisions by reason",
    "reqps",
    "Requests that engines let in, or refused and why.",
    (Query(rate("quire_admission_decisions_total", "reason"), "{{reason}}"),),
    "stacked",
)
PREEMPTIONS = Panel(
    "Preemptions, and tokens computed again",
    "short",
    "Per second. Requests lose their blocks only when none is free.",
    (
        Query(rate("quire_preemptions_total", "service, cause"), "{{service}} {{cause}}"),
        Query(rate("quire_recomputed_tokens_total", "service"), "{{service}} tokens"),
    ),
)
PREFIXES = Panel(
    "Prompt tokens found in the prefix cache",
    "percentunit",
    "Of those that were looked up.",
    (
        Query(
            f"{rate('vllm:prefix_cache_hits_total', 'service')} / "
            f"{rate('vllm:prefix_cache_queries_total', 'service')}",
            "{{service}}",
        ),
    ),
)
STEPS = Panel(
    "Seconds of a step",
    "s",
    "Of decodes alone, of prompts alone, or of both.",
    tail("quire_step_seconds", "service, kind"),
)
TOKENS = Panel(
    "Tokens generated",
    "short",
    "Per second and accelerator.",
    (
        Query(
            rate("vllm:generation_tokens_total", "service, accelerator"),
            "{{service}} {{accelerator}}",
        ),
    ),
    "stacked",
)
ENGINE_QUEUE = Panel(
    "Requests in engines",
    "short",
    "Running and waiting, by the class that they came in.",
    (
        Query(
            total("quire_requests_running", "service, priority"), "{{service}} {{priority}} runs"
        ),
        Query(
            total("quire_requests_waiting", "service, priority"), "{{service}} {{priority}} waits"
        ),
    ),
    "stacked",
)
FIRST_TOKEN = Panel(
    "Time to the first token, in engines",
    "s",
    "From a request's arrival at its engine.",
    tail("vllm:time_to_first_token_seconds"),
)
PACE = Panel(
    "Time per token after the first",
    "s",
    "From one token to the next.",
    tail("vllm:inter_token_latency_seconds"),
)
