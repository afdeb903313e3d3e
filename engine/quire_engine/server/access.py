"""Who may do what: keys of clients, and the token that gateway and operator know engines by.

    probes, /metrics, /version, the page     everybody
    /state, /drain, /thresholds, and the     who has the internal token; if no token file is
    x-quire-* headers that steer             configured, this machine (with a key, if there are any)
    everything else                          who has a key or the internal token, if there are any

Without a token file, steering is for this machine alone because it stops the engine, or takes
room from other clients. A connection counts as from this machine if it comes over the loopback,
no proxy says that it passes on another's request, and no browser says that another site asked: a
page anywhere can make its reader's browser post to 127.0.0.1.
"""

from pathlib import Path

from starlette.datastructures import Headers
from starlette.types import Scope

from quire_engine.config import AccessConfig
from quire_engine.config.values import split
from quire_engine.server.errors import ApiError
from quire_engine.server.secret_file import Digests, SecretFile, digest

OPEN_PATHS = frozenset({"/", "/health", "/healthz", "/metrics", "/readyz", "/version"})
"""What asks for no key; as in vLLM, and the page, which asks for the key itself."""
OPEN_FOLDER = "/page/"
"""Files of the page."""
CONTROL_PATHS = frozenset({"/drain", "/state", "/state/stream", "/thresholds"})
CLIENT_HEADERS = frozenset({"x-quire-deadline-ms", "x-quire-priority"})
"""Of the x-quire-* headers, those that any client may send."""
_PREFIX = "x-quire-"
_FORWARDED = ("forwarded", "x-forwarded-for", "x-real-ip", "via")
_LOOPBACK_HOSTS = frozenset({"localhost", "127.0.0.1", "[::1]"})
_LOOPBACK_CLIENTS = ("127.", "::1", "::ffff:127.")


class AccessError(ApiError):
    """401 or 403; of the first, clients are told what is asked for."""

    def __init__(self, status: int, message: str, code: str, *, is_wrong: bool = False) -> None:
        super().__init__(status, message, code=code)
        self._is_wrong = is_wrong

    def headers(self) -> dict[str, str]:
        """Ask for a bearer token, as RFC 6750 has it."""
        if self.status != 401:
            return {}
        problem = ', error="invalid_token"' if self._is_wrong else ""
        return {"www-authenticate": f'Bearer realm="quire"{problem}'}


class Access:
    """Judges requests by their path, headers and origin; reads no body.

    Raises
    ------
    ConfigError
        A file of keys or tokens cannot be read.
    """

    def __init__(self, config: AccessConfig) -> None:
        self._keys = Digests(split(config.api_key))
        self._key_file = _open(config.api_key_file)
        self._token_file = _open(config.internal_token_file)
        self._has_keys = config.api_key is not None or self._key_file is not None

    def refuse(self, scope: Scope) -> ApiError | None:
        """Why this request is not let in, or None if it is."""
        path = scope["path"]
        if path in OPEN_PATHS or path.startswith(OPEN_FOLDER):
            return None
        headers = Headers(scope=scope)
        presented = _bearer(headers)
        if presented is not None and self._token_file and self._token_file.has(presented):
            return None
        steering = path if path in CONTROL_PATHS else _steering_header(headers)
        if steering is not None and (refusal := self._refuse_steering(scope, headers, steering)):
            return refusal
        return self._refuse_client(headers, presented)

    def _refuse_steering(self, scope: Scope, headers: Headers, what: str) -> ApiError | None:
        if self._token_file is not None:
            return AccessError(
                401,
                f"{what} is for gateways and operators: send the service's internal token.",
                "internal_token_required",
            )
        if _is_local(scope, headers):
            return None
        return AccessError(
            403,
            f"{what} is for this machine alone, unless the server is started with"
            " --internal-token-file.",
            "local_only",
        )

    def _refuse_client(self, headers: Headers, presented: bytes | None) -> ApiError | None:
        if not self._has_keys and self._token_file is None:
            if _is_cross_site(headers):
                return AccessError(
                    403, "Pages of other sites may not use this server.", "cross_site"
                )
            return None
        if presented is None:
            return AccessError(
                401,
                "There is no key in the request: send it as `Authorization: Bearer KEY`.",
                "missing_api_key",
            )
        if self._keys.has(presented) | (
            self._key_file is not None and self._key_file.has(presented)
        ):
            return None
        return AccessError(
            401, "The key is not one of this server's.", "invalid_api_key", is_wrong=True
        )


def _open(path: str | None) -> SecretFile | None:
    return None if path is None else SecretFile(Path(path).expanduser())


def _bearer(headers: Headers) -> bytes | None:
    """The digest of what is presented; two headers present nothing."""
    values = headers.getlist("authorization")
    scheme, _, secret = values[0].partition(" ") if len(values) == 1 else ("", "", "")
    secret = secret.strip()
    return digest(secret.encode("latin-1")) if scheme.lower() == "bearer" and secret else None


def _steering_header(headers: Headers) -> str | None:
    for name in headers.keys():  # noqa: SIM118 - Headers is typed as iterating over anything
        if name.startswith(_PREFIX) and name not in CLIENT_HEADERS:
            return name
    return None


def _is_local(scope: Scope, headers: Headers) -> bool:
    client = scope.get("client")
    is_loopback = client is not None and client[0].startswith(_LOOPBACK_CLIENTS)
    is_passed_on = any(name in headers for name in _FORWARDED)
    host = headers.get("host", "").lower()
    name = host if host.endswith("]") else host.rpartition(":")[0] or host
    is_named_so = name in _LOOPBACK_HOSTS  # a site whose name leads here is another site
    origin = headers.get("origin")
    is_own_page = origin is None or origin.lower() == f"http://{host}"
    return (
        is_loopback
        and not is_passed_on
        and is_named_so
        and is_own_page
        and not _is_cross_site(headers)
    )


def _is_cross_site(headers: Headers) -> bool:
    """Whether a browser says that a page of another origin asks; other programs say nothing."""
    return headers.get("sec-fetch-site", "none") not in ("none", "same-origin")
