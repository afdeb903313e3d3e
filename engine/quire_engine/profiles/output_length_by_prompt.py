"""How long requests run on, by the length of their prompts.

Short questions and long documents get answers of different lengths. One estimate for all would be
right on average and wrong for each mixture that happens to run. So there is one for each half
octave of prompt lengths, and one for all together that these lean on: it counts as `LEAN` requests
of each class, so that a class that has seen few is answered like any other request.
"""

from collections.abc import Iterable

from quire_engine.profiles.output_length import OutputLengthSketch, Running, SurvivalCurve

LEAN = 3.0
"""Requests of each class that the estimate for all is worth."""


class OutputLengthByPrompt:
    """Survival estimates that are kept up to date.

    Parameters
    ----------
    overall
        Outputs of all requests, from an earlier run perhaps; what is learnt here is added to it.
    """

    def __init__(self, overall: OutputLengthSketch | None = None) -> None:
        self.overall = overall or OutputLengthSketch()
        self._classes: dict[int, OutputLengthSketch] = {}
        self._running: dict[int, list[Running]] = {}
        self._hazards = self.overall.hazards()
        self._curves: dict[int, SurvivalCurve] = {}

    def begin(self) -> int:
        """Note that a request begins, and return its number."""
        return self.overall.begin()

    def add(self, num_prompt_tokens: int, num_generated: int, *, ended: bool, number: int) -> None:
        """Count a request that ended of its own accord, or was cut off."""
        self.overall.add(num_generated, ended=ended, number=number)
        of_class = self._sketch(class_of(num_prompt_tokens))
        of_class.add(num_generated, ended=ended, number=number)

    def refresh(self, running: Iterable[tuple[int, int, int]]) -> None:
        """Estimate anew, those that still run included.

        Parameters
        ----------
        running
            (prompt tokens, tokens generated so far, number) of each.
        """
        by_class: dict[int, list[Running]] = {}
        for num_prompt_tokens, num_generated, number in running:
            of_class = by_class.setdefault(class_of(num_prompt_tokens), [])
            of_class.append((num_generated, number))
        self._running = by_class
        self._hazards = self.overall.hazards(r for each in by_class.values() for r in each)
        self._curves.clear()

    def curve(self, num_prompt_tokens: int) -> SurvivalCurve:
        """Return the estimate for a request with such a prompt, as of the last refresh."""
        return self.curve_of(class_of(num_prompt_tokens))

    def curve_of(self, length_class: int) -> SurvivalCurve:
        """Return the estimate for a class, as of the last refresh."""
        curve = self._curves.get(length_class)
        if curve is None:
            hazards = self._hazards
            if length_class in self._classes or length_class in self._running:
                running = self._running.get(length_class, ())
                hazards = self._sketch(length_class).hazards(running, prior=hazards)
            curve = self._curves[length_class] = SurvivalCurve(hazards)
        return curve

    def _sketch(self, length_class: int) -> OutputLengthSketch:
        """Return a class's sketch, faded to now."""
        sketch = self._classes.get(length_class)
        if sketch is None:
            half_life = self.overall.half_life
            sketch = OutputLengthSketch(half_life=half_life, prior_weight=LEAN)
            self._classes[length_class] = sketch
        sketch.advance(self.overall.num_begun)
        return sketch


def class_of(num_prompt_tokens: int) -> int:
    """Return the half octave of a prompt's length."""
    return (num_prompt_tokens * num_prompt_tokens).bit_length()
