"""A decoder's weights on the device: fused matrices as cuBLAS and the narrow products want them.

Matrices are [outputs, inputs], as the files have them. Query, key and value are one matrix, and so
are gate and up: one product instead of three or two.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import torch

from quire_engine.execution.cuda.platform import Platform
from quire_engine.execution.cuda.staging import Staging
from quire_engine.models.config import ModelSpec
from quire_engine.models.loading.base import WeightSource

ReportProgress = Callable[[float], None]
NUM_READERS = 8
"""Threads that read a model's layers: each copies a few GB a second out of the files."""


@dataclass(frozen=True, slots=True)
class LayerWeights:
    """One layer."""

    attention_norm: torch.Tensor
    """[hidden]"""
    query_key_value: torch.Tensor
    """[(num_heads + 2 * num_kv_heads) * head_dim, hidden]"""
    attention_output: torch.Tensor
    """[hidden, num_heads * head_dim]"""
    mlp_norm: torch.Tensor
    """[hidden]"""
    gate_up: torch.Tensor
    """[2 * intermediate, hidden]"""
    down: torch.Tensor
    """[hidden, intermediate]"""
    head_norms: tuple[torch.Tensor, torch.Tensor] | None = None
    """[head_dim] each: norms of the query's and the key's heads, where the model has them."""


@dataclass(frozen=True, slots=True)
class DecoderWeights:
    """All of a decoder, in the type it computes in."""

    embedding: torch.Tensor
    """[vocab, hidden]"""
    layers: tuple[LayerWeights, ...]
    final_norm: torch.Tensor
    """[hidden]"""
    head: torch.Tensor
    """[vocab, hidden]: the very tensor `embedding` is, where the model ties them."""
    rope_factors: torch.Tensor | None = None
    """[head_dim / 2] float32, CPU: divides the rotary frequencies, where the files have it."""


class Weights(ABC):
    """Where a decoder's weights come from."""

    @abstractmethod
    def open(self) -> ModelSpec:
        """Read the model's facts; raises ModelError."""

    @abstractmethod
    def load(self, platform: Platform, progress: ReportProgress) -> DecoderWeights:
        """Bring the weights onto the device; raises ModelError."""


class FileWeights(Weights):
    """Weights of a GGUF file, or of a Hugging Face folder; or of any other `WeightSource`."""

    def __init__(self, origin: Path | WeightSource) -> None:
        self._origin = origin

    def open(self) -> ModelSpec:
        """Open the files."""
        if isinstance(self._origin, Path):
            # imported here: a run without files needs no packages that read them
            from quire_engine.models.loading.weights import open_weights

            self._origin = open_weights(self._origin)
        return self._origin.spec

    def has(self, name: str) -> bool:
        """Whether the opened files have this tensor."""
        return not isinstance(self._origin, Path) and self._origin.find(name) is not None

    def load(self, platform: Platform, progress: ReportProgress) -> DecoderWeights:
        """Read each tensor straight into its place in the fused matrices, several at a time."""
        spec = self.open()
        source = self._origin
        if isinstance(source, Path):
            raise RuntimeError("bug: the files are not open")  # noqa: TRY004
        reader = _Reader(source, platform)
        vocabulary = (spec.vocab_size, spec.hidden_size)
        embedding = reader.stack(["model.embed_tokens.weight"], [vocabulary])
        head = embedding
        if source.find("lm_head.weight") is not None or not spec.ties_embeddings:
            head = reader.stack(["lm_head.weight"], [vocabulary])
        layers = _load_layers(reader, spec, platform, progress)
        factors = None
        if source.find("rope_freqs.weight") is not None:
            factors = source.tensor("rope_freqs.weight", (spec.head_dim // 2,))
        final_norm = reader.stack(["model.norm.weight"], [(spec.hidden_size,)])
        reader.finish()
        return DecoderWeights(embedding, tuple(layers), final_norm, head, factors)


class RandomWeights(Weights):
    """Random weights of a model's sizes, made on the device: for benchmarks and calibration.

    Parameters
    ----------
    has_head_norms
        Whether queries and keys are normalised per head, as in Qwen3.
    """

    def __init__(self, spec: ModelSpec, *, has_head_norms: bool = False, seed: int = 0) -> None:
        self._spec = spec
        self._has_head_norms = has_head_norms
        self._seed = seed

    def open(self) -> ModelSpec:
        """Return the sizes."""
        return self._spec

    def load(self, platform: Platform, progress: ReportProgress) -> DecoderWeights:
        """Draw all weights from a normal distribution, norms around one."""
        spec = self._spec
        generator = None
        if platform.device.type != "meta":  # which has no chance, as it has no memory
            generator = torch.Generator(platform.device).manual_seed(self._seed)
        query, key = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim
        hidden, inner = spec.hidden_size, spec.intermediate_size

        def draw(*shape: int, mean: float = 0.0) -> torch.Tensor:
            values = torch.empty(shape, dtype=platform.dtype, device=platform.device)
            return values.normal_(mean, 0.02, generator=generator)

        embedding = draw(spec.vocab_size, hidden)
        layers = []
        for index in range(spec.num_layers):
            norms = (draw(spec.head_dim, mean=1.0), draw(spec.head_dim, mean=1.0))
            layers.append(
                LayerWeights(
                    attention_norm=draw(hidden, mean=1.0),
                    query_key_value=draw(query + 2 * key, hidden),
                    attention_output=draw(hidden, query),
                    mlp_norm=draw(hidden, mean=1.0),
                    gate_up=draw(2 * inner, hidden),
                    down=draw(hidden, inner),
                    head_norms=norms if self._has_head_norms else None,
                )
            )
            progress((index + 1) / spec.num_layers)
        head = embedding if spec.ties_embeddings else draw(spec.vocab_size, hidden)
        return DecoderWeights(embedding, tuple(layers), draw(hidden, mean=1.0), head)


class _Reader:
    """Copies a source's tensors to the device, in its type, and looks at their values there."""

    def __init__(self, source: WeightSource, platform: Platform) -> None:
        self._source = source
        self._platform = platform
        self._staging = Staging(platform)
        self._finite: dict[str, torch.Tensor] = {}
        """For each tensor: [] bool, device."""

    def has(self, name: str) -> bool:
        """Whether the model has this tensor."""
        return self._source.find(name) is not None

    def stack(self, names: Sequence[str], shapes: Sequence[tuple[int, ...]]) -> torch.Tensor:
        """Read tensors one below the other into one."""
        rows = sum(shape[0] for shape in shapes)
        whole = torch.empty(
            (rows, *shapes[0][1:]), dtype=self._platform.dtype, device=self._platform.device
        )
        first = 0
        for name, shape in zip(names, shapes, strict=True):
            part = whole[first : first + shape[0]]
            self._staging.copy(self._source.stored_tensor(name, shape), part)
            self._finite[name] = torch.stack(torch.aminmax(part)).isfinite().all()
            first += shape[0]
        return whole

    def finish(self) -> None:
        """Raise ModelError if a tensor has values that are not finite in the device's type."""
        self._staging.close()
        are_finite = torch.stack(list(self._finite.values())).tolist()
        for name, is_finite in zip(self._finite, are_finite, strict=True):
            if not is_finite:
                raise self._source.not_finite(name)


def _load_layers(
    reader: _Reader, spec: ModelSpec, platform: Platform, progress: ReportProgress
) -> list[LayerWeights]:
    """Read layers side by side: one thread alone is slower than the device."""

    def load(index: int) -> LayerWeights:
        with platform.on_stream():
            return _load_layer(reader, spec, f"model.layers.{index}.")

    layers: list[LayerWeights] = []
    pool = ThreadPoolExecutor(NUM_READERS)
    try:
        for layer in pool.map(load, range(spec.num_layers)):
            layers.append(layer)
            progress(len(layers) / spec.num_layers)
    finally:
        pool.shutdown(cancel_futures=True)
    return layers


def _load_layer(reader: _Reader, spec: ModelSpec, prefix: str) -> LayerWeights:
    hidden, inner = spec.hidden_size, spec.intermediate_size
    query, key_value = spec.num_heads * spec.head_dim, spec.num_kv_heads * spec.head_dim

    def read(names: str, outputs: Sequence[int], *inputs: int) -> torch.Tensor:
        paths = [f"{prefix}{name}.weight" for name in names.split()]
        return reader.stack(paths, [(size, *inputs) for size in outputs])

    head_norms = None
    if reader.has(f"{prefix}self_attn.q_norm.weight"):
        sizes = [spec.head_dim]
        head_norms = (read("self_attn.q_norm", sizes), read("self_attn.k_norm", sizes))
    return LayerWeights(
        attention_norm=read("input_layernorm", [hidden]),
        query_key_value=read(
            "self_attn.q_proj self_attn.k_proj self_attn.v_proj",
            [query, key_value, key_value],
            hidden,
        ),
        attention_output=read("self_attn.o_proj", [hidden], query),
        mlp_norm=read("post_attention_layernorm", [hidden]),
        gate_up=read("mlp.gate_proj mlp.up_proj", [inner, inner], hidden),
        down=read("mlp.down_proj", [hidden], inner),
        head_norms=head_norms,
    )
