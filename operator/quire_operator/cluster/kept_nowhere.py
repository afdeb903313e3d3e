"""What kopf would keep on objects for handlers of changes: nothing, for there are none.

It compares every object that a watch brings with what it kept the last time, and copies it thrice
for that, even where only `on.event` handlers listen: a quarter of the operator's processor time.
"""

from collections.abc import Iterable
from typing import Any

import kopf


class NoDiffs(kopf.DiffBaseStorage):
    """No object has changed, as far as kopf is concerned."""

    def build(
        self,
        *,
        body: kopf.Body,  # noqa: ARG002
        extra_fields: Iterable[Any] | None = None,  # noqa: ARG002
    ) -> Any:  # noqa: ANN401
        """Nothing of an object is compared."""
        return {}

    def fetch(self, *, body: kopf.Body) -> None:  # noqa: ARG002
        """Nothing was kept."""
        return

    def store(self, **_: Any) -> None:  # noqa: ANN401
        """Keep nothing."""


class NoProgress(kopf.ProgressStorage):
    """No handler is ever under way."""

    def fetch(self, **_: Any) -> None:  # noqa: ANN401
        """Nothing was kept."""
        return

    def store(self, **_: Any) -> None:  # noqa: ANN401
        """Keep nothing."""

    def purge(self, **_: Any) -> None:  # noqa: ANN401
        """Nothing was kept."""

    def touch(self, **_: Any) -> None:  # noqa: ANN401
        """Keep nothing."""

    def clear(self, *, essence: Any) -> Any:  # noqa: ANN401
        """Nothing of it is ours."""
        return essence
