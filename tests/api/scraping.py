"""Reading a server's metrics."""

from prometheus_client.parser import text_string_to_metric_families

from quire_engine.protocol import metric_names as names
from tests.api.servers import MODEL, RunningServer

IDLE_GAUGES = (
    names.NUM_REQUESTS_RUNNING,
    names.NUM_REQUESTS_WAITING,
    names.KV_CACHE_USAGE,
    names.BLOCKS_HELD,
    names.BLOCKS_RESERVED,
    names.BLOCKS_QUEUED,
    names.BLOCKS_YIELDING,
    names.BLOCKS_OVERSHOOT,
    names.UNFILLED_SLOTS,
    names.PRESSURE,
    names.RUNNING,
    names.WAITING,
    names.WAITING_BY_REASON,
)
"""Zero while nothing runs, for every label."""


def scrape(server: RunningServer) -> dict[str, float]:
    """Samples by name and labels other than the model's, such as `name{label=value}`."""
    samples = {}
    for family in text_string_to_metric_families(server.get("/metrics").text):
        for sample in family.samples:
            labels = dict(sample.labels)
            is_of_process = sample.name.startswith(("http_", "process_"))
            assert labels.pop("model_name", None) == (None if is_of_process else MODEL), sample.name
            key = sample.name + "".join(f"{{{name}={value}}}" for name, value in labels.items())
            samples[key] = sample.value
    return samples


def decisions(reason: str) -> str:
    """The sample that counts admission decisions of this reason."""
    return f"{names.ADMISSION_DECISIONS}{{{names.REASON_LABEL}={reason}}}"


def check_gauges_are_zero(server: RunningServer) -> None:
    """Every gauge of what is in the engine is there, and zero for each label."""
    samples = scrape(server)
    for name in IDLE_GAUGES:
        values = {key: value for key, value in samples.items() if key.partition("{")[0] == name}
        assert values, name
        assert set(values.values()) == {0.0}, values
