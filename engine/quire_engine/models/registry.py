"""Which architectures are supported, by the names that model files give them."""

from collections.abc import Callable, Mapping

from quire_engine.errors import ModelError
from quire_engine.models.config import ModelSpec
from quire_engine.models.families import gemma2, gemma3, llama, mistral, phi3, qwen2, qwen3
from quire_engine.models.metadata import Facts

SpecReader = Callable[[Facts, str], ModelSpec]

HF_ARCHITECTURES: Mapping[str, SpecReader] = {
    "Gemma2ForCausalLM": gemma2.spec_from_hf,
    "Gemma3ForCausalLM": gemma3.spec_from_hf,
    "Gemma3ForConditionalGeneration": gemma3.text_spec_from_hf,
    "LlamaForCausalLM": llama.spec_from_hf,
    "MistralForCausalLM": mistral.spec_from_hf,
    "Phi3ForCausalLM": phi3.spec_from_hf,
    "Qwen2ForCausalLM": qwen2.spec_from_hf,
    "Qwen3ForCausalLM": qwen3.spec_from_hf,
}
"""By an entry of `architectures` in a Hugging Face config.json."""

GGUF_ARCHITECTURES: Mapping[str, SpecReader] = {
    "gemma2": gemma2.spec_from_gguf,
    "gemma3": gemma3.spec_from_gguf,
    "llama": llama.spec_from_gguf,
    "phi3": phi3.spec_from_gguf,
    "qwen2": qwen2.spec_from_gguf,
    "qwen3": qwen3.spec_from_gguf,
}
"""By `general.architecture` in GGUF metadata."""


def spec_from_hf_config(facts: Facts) -> ModelSpec:
    """Read the spec of the first supported entry of `architectures`.

    Raises
    ------
    ModelError
        None is supported (the message lists those that are), or a value is missing or wrong.
    """
    named = facts.values.get("architectures")
    names = [name for name in named if isinstance(name, str)] if isinstance(named, list) else []
    for name in names:
        if name in HF_ARCHITECTURES:
            return HF_ARCHITECTURES[name](facts, name)
    raise _unsupported(facts, ", ".join(names) or "(none named)", HF_ARCHITECTURES)


def spec_from_gguf_metadata(facts: Facts) -> ModelSpec:
    """Read the spec of a GGUF file's `general.architecture`; raises as `spec_from_hf_config`."""
    name = facts.values.get("general.architecture")
    if not isinstance(name, str) or name not in GGUF_ARCHITECTURES:
        raise _unsupported(facts, str(name), GGUF_ARCHITECTURES)
    return GGUF_ARCHITECTURES[name](facts, name)


def _unsupported(facts: Facts, found: str, supported: Mapping[str, SpecReader]) -> ModelError:
    return ModelError(
        f"{facts.origin}: architecture {found} is not supported; supported are "
        f"{', '.join(sorted(supported))}"
    )
