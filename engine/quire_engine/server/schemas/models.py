"""`GET /v1/models` and the small bodies of probes."""

from typing import Literal

import msgspec


class ModelCard(msgspec.Struct, kw_only=True):
    """A model that is served."""

    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "quire"
    max_model_len: int | None = None
    """Most tokens of prompt and output together; null while the model is loading."""


class ModelList(msgspec.Struct, kw_only=True):
    """All models that are served."""

    object: Literal["list"] = "list"
    data: list[ModelCard]


class Health(msgspec.Struct, kw_only=True):
    """Whether a probe succeeds, and if not, why."""

    status: Literal["ok", "loading", "restarting", "draining"]


class Version(msgspec.Struct, kw_only=True):
    """Which version of quire this is."""

    version: str
