"""Who a gateway is: its name, its certificate, the secret that it shows engines."""

import os
import re
import secrets
import socket
from pathlib import Path

from quire_engine.protocol.internal_token import MIN_SECRET_BYTES
from quire_gateway.errors import SettingsError
from quire_gateway.http.tls import Certificate
from quire_gateway.settings import GatewaySettings


def gateway_name() -> str:
    """Return a name that no other gateway has, nor this one after it starts again."""
    host = re.sub(r"[^A-Za-z0-9.-]", "-", socket.gethostname())[:40]
    return f"{host}-{os.getpid()}-{secrets.token_hex(4)}"


def read_certificate(settings: GatewaySettings, kept: Path | None = None) -> Certificate | None:
    """Read the certificate of the clients' port; None for a port without TLS.

    Parameters
    ----------
    kept
        See `Certificate`.

    Raises
    ------
    SettingsError
        It cannot be used.
    """
    if not settings.tls_certificate_file:
        return None
    return Certificate(Path(settings.tls_certificate_file), Path(settings.tls_key_file), kept)


def read_secret(path: str) -> bytes | None:
    """Read the secret that internal tokens are made of; None if there is no path.

    Raises
    ------
    SettingsError
        It cannot be used.
    """
    if not path:
        return None
    try:
        secret = Path(path).read_bytes().strip()
    except OSError as error:
        raise SettingsError(f"cannot read {path}: {error.strerror}") from error
    if len(secret) < MIN_SECRET_BYTES:
        raise SettingsError(f"{path}: the secret needs at least {MIN_SECRET_BYTES} bytes")
    return secret
