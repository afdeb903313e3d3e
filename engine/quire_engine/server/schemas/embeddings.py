"""`POST /v1/embeddings`: request and response."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from quire_engine.server.schemas.parameters import TokenId
from quire_engine.server.schemas.prompts import read_prompts

MAX_INPUTS = 2048


class EmbeddingRequest(msgspec.Struct, kw_only=True):
    """Texts to be made vectors."""

    model: str
    """A name that `GET /v1/models` lists."""
    input: str | Annotated[list[TokenId | str | list[TokenId]], Meta(max_length=2**20)]
    """A text or its token ids, or a list of up to 2048 of either."""
    encoding_format: Literal["float", "base64"] | None = "float"
    """Numbers, or base64 of little-endian 4-byte floats."""
    dimensions: Annotated[int, Meta(ge=1, le=2**31 - 1)] | None = None
    """Length of the vectors: the model's own, or a shorter one where the model allows it."""
    user: str | None = None
    """Accepted and not used."""
    priority: Annotated[int, Meta(ge=-(2**53), le=2**53)] | None = 0
    """0 or less is interactive, more is background; the header x-quire-priority wins."""

    def inputs(self) -> list[str | list[int]]:
        """The inputs, each a text or token ids.

        Raises
        ------
        RequestError
            There is none or are too many, one is empty, or texts and ids are mixed.
        """
        return read_prompts(self.input, "input", MAX_INPUTS)


class Embedding(msgspec.Struct, kw_only=True):
    """The vector of one input, of length 1."""

    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str
    """Numbers, or base64 of them."""


class EmbeddingUsage(msgspec.Struct, kw_only=True):
    """Token counts of all inputs."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingResponse(msgspec.Struct, kw_only=True):
    """The vectors, in the order of the inputs."""

    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage
