"""What replicas have measured of themselves, by accelerator."""

from collections.abc import Mapping

from quire_operator.scaling.decision import Finding
from quire_operator.scaling.inputs import Capability, ServiceInputs

_REFERENCE = (16, 16_384)
"""Decodes and context by which measurements are compared."""
_MOST_SPREAD = 1.5


def capabilities(
    service: ServiceInputs, remembered: Mapping[str, Capability]
) -> tuple[dict[str, Capability], list[Finding]]:
    """What replicas measured of themselves, the median of each accelerator's."""
    found, findings = dict(remembered), []
    for accelerator in service.accelerators:
        measured = [
            one.engine.capability
            for one in service.replicas
            if one.accelerator == accelerator.name
            and one.engine is not None
            and one.engine.capability is not None
        ]
        if not measured:
            continue
        measured.sort(key=_reference_seconds)
        found[accelerator.name] = measured[(len(measured) - 1) // 2]
        fastest, slowest = _reference_seconds(measured[0]), _reference_seconds(measured[-1])
        if slowest > _MOST_SPREAD * fastest > 0:
            findings.append(
                Finding(
                    code="ProfilesDiffer",
                    message=f"replicas on {accelerator.name} measured steps from"
                    f" {fastest * 1e3:.1f} to {slowest * 1e3:.1f} ms for the same work: the"
                    " median is planned with",
                )
            )
    names = {one.name for one in service.accelerators}
    return {name: one for name, one in found.items() if name in names}, findings


def _reference_seconds(capability: Capability) -> float:
    return capability.step_time.predict(*_REFERENCE)
