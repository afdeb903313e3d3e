"""What a service needs of the Secrets in the file."""

import base64
from collections.abc import Mapping

from quire_local.up.resource_file import Key
from quire_operator.planner.api_keys import ApiKeys, read_keys
from quire_operator.planner.observed import SecretsSeen
from quire_operator.resource.reading import InferenceService

Secrets = Mapping[Key, Mapping[str, bytes]]


def see_secrets(service: InferenceService, secrets: Secrets) -> SecretsSeen:
    """Keys of those who may ask, and which Secrets there are not."""
    token, keys = service.spec.model.token_secret_ref, service.spec.access.api_keys_secret_ref
    named = {one.name for one in (token, keys) if one is not None}
    missing = tuple(sorted(one for one in named if (service.namespace, one) not in secrets))
    found = secrets.get((service.namespace, keys.name), {}) if keys is not None else {}
    coded = {name: base64.b64encode(value).decode() for name, value in found.items()}
    return SecretsSeen(keys=read_keys(coded) if coded else ApiKeys(), missing=missing)


def hub_token(service: InferenceService, secrets: Secrets) -> bytes:
    """The Hugging Face token of a service; empty where it has none."""
    reference = service.spec.model.token_secret_ref
    if reference is None:
        return b""
    return secrets.get((service.namespace, reference.name), {}).get(reference.key, b"")
