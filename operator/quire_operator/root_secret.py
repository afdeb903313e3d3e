"""The root that internal tokens are made from: a Secret in the operator's own namespace."""

import base64
import binascii
import secrets

from quire_engine.protocol.internal_token import MIN_SECRET_BYTES
from quire_operator.cluster.api import ClusterApi
from quire_operator.cluster.kinds import SECRETS
from quire_operator.errors import ApiError, SettingsError

_KEY = "root"


async def load_or_make(
    api: ClusterApi, namespace: str, name: str, known: bytes | None = None
) -> bytes:
    """The root secret; made if there is none. Two replicas that both make it agree on the first.

    Parameters
    ----------
    known
        What it was, which it becomes again when it was deleted: all tokens are made from it.

    Raises
    ------
    ApiError
        The API server did not answer, or does not allow it.
    SettingsError
        The Secret is there, and has no root in it.
    """
    found = await api.get(SECRETS, namespace, name)
    if found is None:
        made = base64.b64encode(known or secrets.token_hex(32).encode()).decode()
        body = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"namespace": namespace, "name": name},
            "data": {_KEY: made},
        }
        try:
            found = await api.create(SECRETS, namespace, body)
        except ApiError as error:
            if error.status != 409:
                raise
            found = await api.get(SECRETS, namespace, name) or {}
    try:
        # as gateways read it from a file: one made by hand may end with a line break
        root = base64.b64decode(found["data"][_KEY]).strip()
    except (KeyError, TypeError, binascii.Error):
        root = b""
    if len(root) < MIN_SECRET_BYTES:
        raise SettingsError(
            f"the Secret {namespace}/{name} has no key {_KEY} with at least {MIN_SECRET_BYTES}"
            " bytes: correct it, or delete it and a new one is made"
        )
    return root
