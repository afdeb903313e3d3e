"""How long an engine's steps take: measured by itself, and beyond that as such engines do."""

from collections.abc import Callable
from dataclasses import dataclass

from quire_engine.profiles.step_time import StepLimits, StepTimeModel
from quire_operator.scaling.inputs import Capability


@dataclass(frozen=True, slots=True)
class StepTimes:
    """Seconds of steps: as measured within what was measured, as expected beyond.

    What is expected is scaled to meet what was measured at the edge.
    """

    measured: StepTimeModel
    beyond: StepTimeModel | None
    scale: float

    @classmethod
    def of(cls, capability: Capability, expected: Capability | None) -> "StepTimes":
        """Join the two."""
        model = capability.step_time
        if expected is None or expected.step_time == model:
            return cls(model, None, 1.0)
        edge = model.limits
        decodes = max(min(edge.num_decodes, capability.max_num_seqs), 1)
        context = max(min(edge.context_tokens, capability.num_blocks * capability.block_size), 1)
        prediction = expected.step_time.predict(decodes, context)
        scale = model.predict(decodes, context) / prediction if prediction > 0 else 1.0
        return cls(model, expected.step_time, scale)

    @property
    def limits(self) -> StepLimits | None:
        """The largest steps of which anything is known; None: of all."""
        return self.measured.limits if self.beyond is None else None

    @property
    def predict(self) -> Callable[..., float]:
        """`seconds`, without the detour where one model says all."""
        return self.measured.predict if self.beyond is None else self.seconds

    def seconds(
        self, num_decodes: int, context_tokens: int, prefill_tokens: int = 0, pairs: int = 0
    ) -> float:
        """Seconds of a step; see `StepTimeModel.predict`."""
        model, scale = self.measured, 1.0
        if self.beyond is not None and not model.covers(
            num_decodes, context_tokens, prefill_tokens
        ):
            model, scale = self.beyond, self.scale
        return scale * model.predict(num_decodes, context_tokens, prefill_tokens, pairs)
