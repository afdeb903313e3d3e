"""Which commit a model's revision is: the one that engines found first, until another is asked for.

A revision such as main moves. Without a pin, a replica that starts a week later would serve another
model than the others do. The commit is kept in the status, and told to engines by the live
ConfigMap, not by their template: so nothing restarts for it.
"""

from quire_operator.planner.findings import Findings
from quire_operator.planner.names import RESTART_ANNOTATION
from quire_operator.planner.observed import Observed
from quire_operator.resource.reading import InferenceService

_MAX_LENGTH = 640
_MAX_COMMIT_LENGTH = 128


def resolved_source(service: InferenceService) -> str:
    """What a commit was found for: a source, and the last request to restart: it finds anew."""
    restart = service.annotations.get(RESTART_ANNOTATION, "")
    source = service.spec.model.source
    return (f"{source} restarted at {restart}" if restart else source)[:_MAX_LENGTH]


def pinned_commit(service: InferenceService) -> str:
    """The commit that new engines are to read; empty where they find it themselves."""
    status = service.status
    if not service.spec.model.source.startswith("hf://"):
        return ""
    return status.resolved_revision if status.resolved_source == resolved_source(service) else ""


def resolve(observed: Observed, findings: Findings) -> tuple[str, str]:
    """The commit, and what it was found for; both empty while nobody knows it."""
    service = observed.service
    if commit := pinned_commit(service):
        return commit, service.status.resolved_source
    if findings.is_rolling:
        return "", ""  # old engines would tell of the old source
    told = sorted(
        one.revision
        for one in observed.engines.values()
        if 0 < len(one.revision) <= _MAX_COMMIT_LENGTH
    )
    return (told[0], resolved_source(service)) if told else ("", "")
