"""FILE: one or more YAML documents, InferenceServices and the Secrets that they name."""

import base64
import binascii
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from quire_engine.errors import ConfigError
from quire_local.up.checking import find_problems, find_unknown
from quire_local.up.documents import DocumentError, load_documents
from quire_operator.resource.crd import API_VERSION, KIND
from quire_operator.resource.reading import InferenceService, InvalidResourceError, read

Body = Mapping[str, Any]
Key = tuple[str, str]
"""Namespace and name."""

_LABEL = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_MAX_BYTES = 4 << 20
_NAMESPACE = "default"


class FileError(ConfigError):
    """FILE cannot be used; the message says where and what to do."""


@dataclass(frozen=True, kw_only=True)
class Resources:
    """What a file asks for."""

    services: Mapping[Key, InferenceService]
    secrets: Mapping[Key, Mapping[str, bytes]]
    """Values by key."""
    bodies: Mapping[Key, Body]
    """The services as they are written: what a later edit is compared with."""


def read_file(path: Path, old: Resources | None = None) -> Resources:
    """Read and check a file.

    Parameters
    ----------
    old
        What it said before: some fields may not be changed.

    Raises
    ------
    FileError
        It cannot be used.
    """
    try:
        with path.open("rb") as file:
            text = file.read(_MAX_BYTES + 1)
    except OSError as error:
        raise FileError(f"cannot read {path}: {error.strerror}") from error
    if len(text) > _MAX_BYTES:
        raise FileError(f"{path} is larger than {_MAX_BYTES >> 20} MiB")
    return read_text(text, str(path), old)


def read_text(text: bytes, name: str, old: Resources | None = None) -> Resources:
    """Read and check the documents of a file with this name; see `read_file`."""
    try:
        return _read_documents(load_documents(text), name, old)
    except DocumentError as error:
        raise FileError(f"{name} is no YAML that can be used: {error}") from error
    except FileError:
        raise
    except Exception as error:  # a typing error in a file must not end what runs
        raise FileError(
            f"{name} cannot be checked ({type(error).__name__}: {_in_one_line(error)}): take back"
            " what was changed last, and please report this as a bug"
        ) from error


def _read_documents(documents: Sequence[object], name: str, old: Resources | None) -> Resources:
    services: dict[Key, InferenceService] = {}
    secrets: dict[Key, Mapping[str, bytes]] = {}
    bodies: dict[Key, Body] = {}
    for number, body in enumerate(documents, 1):
        where = f"{name}, document {number}"
        if not isinstance(body, Mapping):
            raise FileError(f"{where} is no object: it needs apiVersion, kind, metadata and spec")
        if (body.get("apiVersion"), body.get("kind")) == ("v1", "Secret"):
            key = _key_of(body, where)
            secrets[key] = _read_secret(body, f"{where} (Secret {key[1]})")
            continue
        service = _read_service(body, where, old)
        if service.key in services:
            raise FileError(f"{where}: InferenceService {service.name} is there already")
        services[service.key], bodies[service.key] = service, body
    if not services:
        raise FileError(f"{name} has no {KIND}: see docs/local.md for one")
    _check_names(services, name)
    return Resources(services=services, secrets=secrets, bodies=bodies)


def _instead_of(said: list[str]) -> str:
    """What stands in for an object of a cluster, if anything does."""
    if said[-1:] != ["PersistentVolumeClaim"]:
        return ""
    return "; take it out of the file, and say --claim CLAIM=FOLDER for what it holds"


def _read_service(body: Body, where: str, old: Resources | None) -> InferenceService:
    if (body.get("apiVersion"), body.get("kind")) != (API_VERSION, KIND):
        said = [str(body[name]) for name in ("apiVersion", "kind") if body.get(name) is not None]
        raise FileError(
            f"{where} is {' '.join(said)[:200] or 'of no apiVersion and kind'}: only {API_VERSION}"
            f" {KIND} and v1 Secret can be used without a cluster{_instead_of(said)}"
        )
    key = _key_of(body, where)
    where = f"{where} ({KIND} {key[1]})"
    if body.get("spec") is None:
        raise FileError(f"{where}: spec is missing")
    shown = {name: body[name] for name in body if name != "status"}
    problems = find_unknown(shown | {"metadata": {}})
    if not problems:
        try:
            service = read(shown)
        except InvalidResourceError as error:
            raise FileError(f"{where}: {error}") from error
        before = None if old is None else old.bodies.get(key)
        problems = find_problems(shown, before)
    if problems:
        raise FileError(f"{where}: " + "; ".join(problems))
    return service


def _key_of(body: Body, where: str) -> Key:
    metadata = body.get("metadata")
    name = metadata.get("name") if isinstance(metadata, Mapping) else None
    if not isinstance(metadata, Mapping) or not isinstance(name, str) or not name:
        raise FileError(f"{where}: metadata.name is missing")
    namespace = metadata.get("namespace") or _NAMESPACE
    for field, value in (("namespace", namespace), ("name", name)):
        if not isinstance(value, str) or not _LABEL.fullmatch(value):
            raise FileError(
                f"{where}: metadata.{field} {value!a} may have small letters, digits, - and . alone"
            )
    annotations = metadata.get("annotations") or {}
    if not isinstance(annotations, Mapping):
        raise FileError(f"{where}: metadata.annotations is no object")
    for label, text in annotations.items():
        if not isinstance(label, str) or not isinstance(text, str):
            raise FileError(f"{where}: metadata.annotations.{label} is no text: put it into quotes")
    return namespace, name


def _read_secret(body: Body, where: str) -> Mapping[str, bytes]:
    values: dict[str, bytes] = {}
    for field in ("data", "stringData"):
        several = body.get(field) or {}
        if not isinstance(several, Mapping):
            raise FileError(f"{where}: {field} is no object")
        for key, text in several.items():
            if not isinstance(text, str):
                raise FileError(f"{where}: {field}.{key} is no text: put it into quotes")
            try:
                is_coded = field == "data"
                values[str(key)] = (
                    base64.b64decode(text, validate=True) if is_coded else text.encode()
                )
            except (binascii.Error, ValueError):
                raise FileError(
                    f"{where}: data.{key} is not base64; text as it is belongs into stringData"
                ) from None
    return values


def _check_names(services: Mapping[Key, InferenceService], name: str) -> None:
    """All services share one address, so that the model's name alone says which is meant."""
    owners: dict[str, InferenceService] = {}
    for service in services.values():
        for model in (service.served_name, *service.spec.model.aliases):
            if model in owners:
                raise FileError(
                    f"{name}: {owners[model].name} and {service.name} both serve a model named"
                    f" {model}: give one of them another model.name or alias"
                )
            owners[model] = service


def _in_one_line(error: Exception) -> str:
    return " ".join(str(error).split())
