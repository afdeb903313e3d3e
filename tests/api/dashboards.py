"""What published dashboards for vLLM ask Prometheus for: every series of each, none left out.

Of vLLM 0.33.0 the five files under examples/observability of its source distribution; of its main
branch in November 2026 five newer ones; and those of vllm-project/production-stack.
"""

import re
from collections.abc import Iterator

PUBLISHED = {
    "vLLM 0.33.0: prometheus_grafana/grafana.json": """
        vllm:e2e_request_latency_seconds_{bucket,count,sum} vllm:generation_tokens_total
        vllm:inter_token_latency_seconds_{bucket,count,sum} vllm:kv_cache_usage_perc
        vllm:num_requests_running vllm:num_requests_waiting vllm:prompt_tokens_total
        vllm:request_decode_time_seconds_sum vllm:request_generation_tokens_bucket
        vllm:request_max_num_generation_tokens_sum vllm:request_prefill_time_seconds_sum
        vllm:request_prompt_tokens_bucket vllm:request_queue_time_seconds_sum
        vllm:request_success_total vllm:request_time_per_output_token_seconds_{bucket,count,sum}
        vllm:time_to_first_token_seconds_{bucket,count,sum}""",
    "vLLM 0.33.0: dashboards/grafana/performance_statistics.json and its perses twin": """
        vllm:e2e_request_latency_seconds_{bucket,count,sum} vllm:generation_tokens_total
        vllm:inter_token_latency_seconds_{bucket,count,sum} vllm:iteration_tokens_total_count
        vllm:prompt_tokens_total vllm:time_to_first_token_seconds_{bucket,count,sum}""",
    "vLLM 0.33.0: dashboards/grafana/query_statistics.json and its perses twin": """
        vllm:e2e_request_latency_seconds_bucket vllm:generation_tokens_total
        vllm:kv_cache_usage_perc vllm:num_requests_running vllm:num_requests_waiting
        vllm:prompt_tokens_total vllm:request_prompt_tokens_bucket vllm:request_success_total""",
    "vLLM: vllm_overview.json": """
        http_request_duration_seconds_{count,sum} http_requests_total up
        vllm:e2e_request_latency_seconds_{bucket,count,sum}
        vllm:external_prefix_cache_{hits,queries}_total vllm:generation_tokens_total
        vllm:inter_token_latency_seconds_{bucket,count,sum}
        vllm:iteration_tokens_total_{bucket,count,sum} vllm:kv_cache_usage_perc
        vllm:mm_cache_{hits,queries}_total vllm:num_preemptions_total vllm:num_requests_running
        vllm:num_requests_waiting vllm:num_requests_waiting_by_reason
        vllm:prefix_cache_{hits,queries}_total vllm:prompt_tokens_by_source_total
        vllm:prompt_tokens_total vllm:request_decode_time_seconds_{count,sum}
        vllm:request_generation_tokens_{bucket,count,sum}
        vllm:request_prefill_time_seconds_{count,sum} vllm:request_prompt_tokens_{bucket,count,sum}
        vllm:request_queue_time_seconds_{bucket,count,sum} vllm:request_success_total
        vllm:request_time_per_output_token_seconds_{bucket,count,sum}
        vllm:time_to_first_token_seconds_{bucket,count,sum}""",
    "vLLM: vllm_kv_cache.json": """
        vllm:external_prefix_cache_{hits,queries}_total
        vllm:kv_block_idle_before_evict_seconds_{bucket,count,sum}
        vllm:kv_block_lifetime_seconds_{bucket,count,sum}
        vllm:kv_block_reuse_gap_seconds_{bucket,count,sum} vllm:kv_cache_usage_perc
        vllm:kv_offload_allocation_failure_total vllm:kv_offload_cpu_cache_usage_perc
        vllm:kv_offload_cpu_cache_{read,write}_usage_perc vllm:kv_offload_load_bytes_total
        vllm:kv_offload_load_size_{count,sum} vllm:kv_offload_load_time_total
        vllm:kv_offload_lookup_{async,sync}_delay_seconds_bucket vllm:kv_offload_store_bytes_total
        vllm:kv_offload_store_size_{count,sum} vllm:kv_offload_store_time_total
        vllm:kv_offload_stores_skipped_total vllm:mm_cache_{hits,queries}_total
        vllm:nixl_bytes_transferred_{bucket,count,sum} vllm:nixl_num_descriptors_{bucket,count,sum}
        vllm:nixl_num_failed_{notifications,transfers}_total vllm:nixl_num_kv_expired_reqs_total
        vllm:nixl_num_notifications_after_expiry_total
        vllm:nixl_post_time_seconds_{bucket,count,sum}
        vllm:nixl_xfer_time_seconds_{bucket,count,sum} vllm:num_preemptions_total
        vllm:num_requests_kv_fetch_by_stage vllm:num_requests_running
        vllm:num_requests_waiting_by_reason vllm:prefix_cache_{hits,queries}_total
        vllm:prompt_tokens_by_source_total vllm:prompt_tokens_cached_by_source_total
        vllm:prompt_tokens_cached_total vllm:prompt_tokens_total
        vllm:request_prefill_kv_computed_tokens_{count,sum} vllm:request_prompt_tokens_{count,sum}
        vllm:simple_kv_offload_load_blocks_total vllm:simple_kv_offload_pending_store_blocks
        vllm:simple_kv_offload_save_outcomes_total vllm:simple_kv_offload_used_blocks""",
    "vLLM: vllm_instances.json": """
        process_cpu_seconds_total process_max_fds process_open_fds process_resident_memory_bytes
        process_start_time_seconds vllm:cache_config_info vllm:e2e_request_latency_seconds_bucket
        vllm:engine_sleep_state vllm:estimated_flops_per_gpu_total
        vllm:estimated_{read,write}_bytes_per_gpu_total vllm:generation_tokens_total
        vllm:inter_token_latency_seconds_bucket vllm:iteration_tokens_total_{count,sum}
        vllm:kv_cache_usage_perc vllm:lora_requests_info vllm:num_preemptions_total
        vllm:num_requests_running vllm:num_requests_waiting vllm:num_requests_waiting_by_reason
        vllm:prefix_cache_{hits,queries}_total vllm:prompt_tokens_total
        vllm:request_queue_time_seconds_{count,sum} vllm:request_success_total
        vllm:rl_weight_update_operation_duration_seconds_{bucket,count,sum}
        vllm:sleep_mode_operation_duration_seconds_{bucket,count,sum}
        vllm:time_to_first_token_seconds_bucket""",
    "vLLM: vllm_service_status.json": """
        vllm:engine_sleep_state vllm:generation_tokens_total vllm:num_requests_running
        vllm:request_success_total vllm:time_to_first_token_seconds_bucket""",
    "vLLM: vllm_speculative_decoding.json": """
        vllm:generation_tokens_total vllm:inter_token_latency_seconds_{bucket,count,sum}
        vllm:num_requests_running vllm:spec_decode_num_accepted_tokens_per_pos_total
        vllm:spec_decode_num_{accepted,draft}_tokens_total vllm:spec_decode_num_drafts_total""",
    "production-stack: helm/dashboards/vllm-dashboard.json": """
        router_{cpu,disk,memory}_usage_percent vllm:current_qps
        vllm:e2e_request_latency_seconds_{bucket,count,sum} vllm:gpu_cache_usage_perc
        vllm:gpu_prefix_cache_{hits,queries}_total vllm:healthy_pods_total
        vllm:num_requests_running vllm:num_requests_swapped vllm:num_requests_waiting
        vllm:time_per_output_token_seconds_{count,sum} vllm:time_to_first_token_seconds_bucket""",
    "production-stack: helm/dashboards/vllm-model-metrics-dashboard.json": """
        vllm:cpu_cache_usage_perc vllm:e2e_request_latency_seconds_{bucket,count,sum}
        vllm:generation_tokens_total vllm:gpu_cache_usage_perc vllm:num_requests_running
        vllm:num_requests_swapped vllm:num_requests_waiting vllm:prompt_tokens_total
        vllm:request_decode_time_seconds_sum vllm:request_generation_tokens_bucket
        vllm:request_max_num_generation_tokens_sum vllm:request_prefill_time_seconds_sum
        vllm:request_prompt_tokens_bucket vllm:request_queue_time_seconds_sum
        vllm:request_success_total vllm:time_per_output_token_seconds_{bucket,count,sum}
        vllm:time_to_first_token_seconds_{bucket,count,sum}""",
    "production-stack: observability/vllm-dashboard.json": """
        node_{cpu,disk,gpu,memory}_usage_query vllm:current_qps
        vllm:e2e_request_latency_seconds_{bucket,count,sum} vllm:gpu_cache_usage_perc
        vllm:gpu_prefix_cache_hit_rate vllm:healthy_pods_total vllm:num_requests_running
        vllm:num_requests_swapped vllm:num_requests_waiting
        vllm:time_per_output_token_seconds_{count,sum} vllm:time_to_first_token_seconds_bucket""",
}

ABSENT = {
    "up": "Prometheus makes it of the scrape itself",
    "node_.*_usage_query": "a rule of the stack's own Prometheus",
    "router_.*|vllm:current_qps|vllm:healthy_pods_total": "the stack's router counts it",
    "vllm:external_prefix_cache_.*|vllm:num_requests_kv_fetch_by_stage|vllm:nixl_.*": (
        "KV is not transferred between engines"
    ),
    "vllm:(simple_)?kv_offload_.*": "KV is not kept outside of the device",
    "vllm:mm_cache_.*": "models take text alone",
    "vllm:kv_block_.*": "vLLM has it with --kv-cache-metrics only; here are evictions",
    "vllm:spec_decode_.*": "there is no speculative decoding",
    "vllm:lora_requests_info": "there are no adapters; vLLM has it with --enable-lora only",
    "vllm:estimated_.*_per_gpu_total": "vLLM has it with --enable-mfu-metrics only",
    "vllm:(sleep_mode|rl_weight_update)_operation_.*": "engines neither sleep nor change weights",
    "vllm:(cpu|gpu)_cache_usage_perc|vllm:gpu_prefix_cache_.*|vllm:num_requests_swapped"
    "|vllm:time_per_output_token_seconds_.*": "vLLM 0.33 has given up these names itself",
}
"""What the page does not have, and why; patterns of whole names."""

LABELLED = {
    *(f"vllm:engine_sleep_state{{sleep_state={state}}}" for state in ("awake", "discard_all")),
    *(f"vllm:num_requests_waiting_by_reason{{reason={why}}}" for why in ("capacity", "deferred")),
    *(
        f"vllm:prompt_tokens_by_source_total{{source={source}}}"
        for source in ("local_cache_hit", "local_compute")
    ),
    "vllm:prompt_tokens_cached_by_source_total{source=device}",
    *(
        f"vllm:request_success_total{{finished_reason={reason}}}"
        for reason in ("abort", "error", "length", "stop")
    ),
    *(
        f"vllm:time_to_first_token_seconds_bucket{{le={end}}}"
        for end in ("0.1", "0.25", "0.5", "0.75", "1.0", "2.5", "5.0", "10.0")
    ),
    *(
        f"vllm:request_time_per_output_token_seconds_bucket{{le={end}}}"
        for end in ("0.025", "0.05", "0.075", "0.1", "0.15", "0.2", "0.3", "0.5")
    ),
}
"""Series that a panel names with a label, too, or that its choices of an objective name."""


def series_of(listed: str) -> set[str]:
    """The names of a list, with {a,b} written out."""
    return {name for word in listed.split() for name in _written_out(word)}


def _written_out(word: str) -> Iterator[str]:
    match = re.fullmatch(r"([^{]*)\{([^}]*)\}(.*)", word)
    if match is None:
        yield word
        return
    head, choices, tail = match.groups()
    for choice in choices.split(","):
        yield f"{head}{choice}{tail}"
