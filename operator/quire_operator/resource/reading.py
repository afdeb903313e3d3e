"""From an object of the API server to an `InferenceService`."""

from collections.abc import Mapping
from typing import Any, TypeVar

from msgspec import Struct, ValidationError, convert

from quire_operator.resource.base import Part
from quire_operator.resource.crd import API_VERSION, KIND
from quire_operator.resource.spec import InferenceServiceSpec
from quire_operator.resource.status import InferenceServiceStatus
from quire_operator.resource.times import without_strange_times

_Part = TypeVar("_Part", bound=Part)


class InvalidResourceError(Exception):
    """An object is not what this version of quire can read; the message says where."""


class InferenceService(Struct, frozen=True, kw_only=True):
    """One resource, as planning needs it."""

    namespace: str
    name: str
    uid: str
    generation: int
    is_being_deleted: bool
    annotations: Mapping[str, str]
    spec: InferenceServiceSpec
    status: InferenceServiceStatus
    created_at: str = ""
    """As the API server writes it; empty for one of a file."""

    @property
    def key(self) -> tuple[str, str]:
        """Namespace and name."""
        return self.namespace, self.name

    @property
    def served_name(self) -> str:
        """What clients put in "model"."""
        return self.spec.model.name or self.name


def read(body: Mapping[str, Any]) -> InferenceService:
    """Read an object that the API server has checked, or a file that it has not.

    Raises
    ------
    InvalidResourceError
        It has another kind, or a field that this version does not understand.
    """
    if (body.get("apiVersion"), body.get("kind")) != (API_VERSION, KIND):
        found = f"{body.get('apiVersion')} {body.get('kind')}"
        raise InvalidResourceError(f"this is {found}, not {API_VERSION} {KIND}")
    metadata = body.get("metadata") or {}
    return InferenceService(
        namespace=metadata.get("namespace", "default"),
        name=metadata.get("name", ""),
        uid=metadata.get("uid", ""),
        generation=metadata.get("generation", 0),
        is_being_deleted="deletionTimestamp" in metadata,
        annotations=metadata.get("annotations") or {},
        spec=_convert(body.get("spec") or {}, InferenceServiceSpec, "spec"),
        status=read_status(body),
        created_at=metadata.get("creationTimestamp") or "",
    )


def read_status(body: Mapping[str, Any]) -> InferenceServiceStatus:
    """Read the status alone, which may be understood where the spec is not.

    Raises
    ------
    InvalidResourceError
        It has a field that this version does not understand.
    """
    return without_strange_times(
        _convert(body.get("status") or {}, InferenceServiceStatus, "status")
    )


def salvage_status(body: Mapping[str, Any]) -> InferenceServiceStatus:
    """What can be understood of a status, field by field."""
    found: dict[str, Any] = {}
    for name, value in (body.get("status") or {}).items():
        try:
            _convert({name: value}, InferenceServiceStatus, "status")
        except InvalidResourceError:
            continue
        found[name] = value
    return without_strange_times(_convert(found, InferenceServiceStatus, "status"))


def _convert(value: object, kind: type[_Part], where: str) -> _Part:
    try:
        return convert(value, kind)
    except ValidationError as error:
        text = str(error)
        raise InvalidResourceError(
            text.replace("`$", f"`{where}") if "`$" in text else f"{where}: {text}"
        ) from error
