"""Panels of what engines say of themselves."""

from hack.observability.panels import BUSY, HERE, IDLE, READY, Panel, Query, rate, tail, total

BLOCKS = Panel(
    "Blocks by state",
    "short",
    "All KV blocks of each replica: held by requests, free with a cached prefix, and free without.",
    (
        Query(total("quire_blocks_held", "service, pod"), "held {{service}} {{pod}}", BUSY),
        Query(total("quire_blocks_cached", "service, pod"), "cached {{service}} {{pod}}", READY),
        Query(
            f"{total('quire_blocks_free', 'service, pod')} - "
            f"{total('quire_blocks_cached', 'service, pod')}",
            "free {{service}} {{pod}}",
            IDLE,
        ),
    ),
    "stacked",
)
SHARES = Panel(
    "Held and reserved, as shares of all blocks",
    "percentunit",
    "Reserved is the peak of predicted blocks by which requests are admitted. Scaling aims at the"
    " service's memoryPressure.target; admission ends at memoryPressure.admission, which is 1 in"
    " Pressure.",
    tuple(
        Query(
            f"{total(f'quire_blocks_{state}', 'service, pod')} / "
            f"{total('quire_blocks_capacity', 'service, pod')}",
            f"{state} {{{{service}}}} {{{{pod}}}}",
        )
        for state in ("held", "reserved")
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
    "Preemptions by cause",
    "cps",
    "blocks: none was free, since predictions were too low. priority: background work gave way.",
    (Query(rate("quire_preemptions_total", "service, cause"), "{{service}} {{cause}}"),),
)
RECOMPUTED = Panel(
    "Tokens computed again, of all",
    "percentunit",
    "Of requests that had lost their blocks. The alert QuirePreemptions fires above 5 %.",
    (
        Query(
            f"{rate('quire_recomputed_tokens_total', 'service')} / "
            f"{rate('quire_scheduled_tokens_total', 'service')}",
            "{{service}}",
        ),
    ),
    edge=0.05,
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
    "cps",
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
    "none",
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
