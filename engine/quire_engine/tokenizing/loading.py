"""Loads a model's tokenizer from its files."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import tokenizers

from quire_engine.errors import ModelError
from quire_engine.models.facts import gguf_spec, hf_spec, read_json
from quire_engine.models.loading.gguf_file import GGUFFile, open_gguf
from quire_engine.models.metadata import Facts
from quire_engine.tokenizing.chat_template import ChatTemplate
from quire_engine.tokenizing.ggml import build_tokenizer
from quire_engine.tokenizing.sentencepiece_folder import load_sentencepiece
from quire_engine.tokenizing.tokenizer import Tokenizer

_MORE_TEMPLATES = "additional_chat_templates"
"""Folder of a model's templates for special purposes."""


def load_tokenizer(model_path: Path) -> Tokenizer:
    """Load the tokenizer, special tokens and chat template of a model.

    Parameters
    ----------
    model_path
        A GGUF file, or a Hugging Face folder.

    Raises
    ------
    ModelError
        The files are missing, damaged, or of a kind that is not supported.
    """
    if model_path.is_dir():
        return _from_folder(model_path)
    return _from_gguf(open_gguf(model_path))


def _from_gguf(file: GGUFFile) -> Tokenizer:
    origin = file.path.name
    backend = build_tokenizer(file.metadata, origin)
    facts = Facts(file.metadata, origin)
    bos = facts.token_ids("tokenizer.ggml.bos_token_id")
    spec = gguf_spec(file)
    eos = spec.eos_token_ids
    source = file.metadata.get("tokenizer.chat_template")
    for_tools = file.metadata.get("tokenizer.chat_template.tool_use")
    names = {"bos_token": bos[:1], "eos_token": eos[:1]}
    variables = {name: _token(backend, ids[0], origin) for name, ids in names.items() if ids}
    return Tokenizer(
        backend,
        bos_token_id=bos[0] if bos else None,
        eos_token_ids=eos,
        chat_template=ChatTemplate(source, variables) if isinstance(source, str) else None,
        tool_template=ChatTemplate(for_tools, variables) if isinstance(for_tools, str) else None,
        template_variables=variables,
    )


def _token(backend: tokenizers.Tokenizer, token_id: int, origin: str) -> str:
    token = backend.id_to_token(token_id)
    if token is None:
        raise ModelError(f"{origin}: special token {token_id} is not in the vocabulary")
    return token


def _from_folder(folder: Path) -> Tokenizer:
    settings_path = folder / "tokenizer_config.json"
    settings = read_json(settings_path) if settings_path.exists() else {}
    backend = _folder_backend(folder, settings)
    variables = _named_tokens(settings)
    bos = variables.get("bos_token")
    # the tokenizer's own ends turns where config.json names only the end of a text
    eos = dict.fromkeys(hf_spec(folder).eos_token_ids + _ids(backend, variables.get("eos_token")))
    source = _template_source(folder, settings, "default")
    for_tools = _template_source(folder, settings, "tool_use")
    return Tokenizer(
        backend,
        bos_token_id=next(iter(_ids(backend, bos)), None),
        eos_token_ids=tuple(eos),
        chat_template=None if source is None else ChatTemplate(source, variables),
        tool_template=None if for_tools is None else ChatTemplate(for_tools, variables),
        template_variables=variables,
    )


def _folder_backend(folder: Path, settings: Mapping[str, Any]) -> tokenizers.Tokenizer:
    """Read tokenizer.json, or else SentencePiece's tokenizer.model."""
    path = folder / "tokenizer.json"
    if not path.exists():
        if not (folder / "tokenizer.model").exists():
            raise ModelError(
                f"{folder.name} has neither tokenizer.json nor tokenizer.model, so text cannot be "
                "tokenized"
            )
        return load_sentencepiece(folder / "tokenizer.model", settings)
    try:
        return tokenizers.Tokenizer.from_file(str(path))
    except Exception as error:
        raise ModelError(f"tokenizer.json cannot be read: {error}") from error


def _ids(backend: tokenizers.Tokenizer, token: str | None) -> tuple[int, ...]:
    token_id = None if token is None else backend.token_to_id(token)
    return () if token_id is None else (token_id,)


def _named_tokens(settings: Mapping[str, Any]) -> dict[str, str]:
    """Return the special tokens that templates may name; each is text, or an object with it."""
    named = {}
    for name in ("bos_token", "eos_token", "unk_token", "pad_token"):
        value = settings.get(name)
        text = value.get("content") if isinstance(value, dict) else value
        if isinstance(text, str):
            named[name] = text
    return named


def _template_source(folder: Path, settings: Mapping[str, Any], name: str) -> str | None:
    """Return a chat template: of a file, or one of several by its name, or the only one."""
    is_default = name == "default"
    path = folder / ("chat_template.jinja" if is_default else f"{_MORE_TEMPLATES}/{name}.jinja")
    if path.exists():
        try:
            return path.read_text(encoding="utf-8")
        except (OSError, ValueError) as error:
            raise ModelError(f"{path.name} cannot be read: {error}") from error
    source = settings.get("chat_template")
    if isinstance(source, list):
        named = [entry for entry in source if isinstance(entry, dict)]
        source = {entry.get("name"): entry.get("template") for entry in named}.get(name)
    elif not is_default:
        return None
    if source is not None and not isinstance(source, str):
        raise ModelError("tokenizer_config.json: chat_template must be text, or a list of named")
    return source
