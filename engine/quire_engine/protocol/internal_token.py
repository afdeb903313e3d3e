"""The token that gateway, operator and engines know each other by.

    token = HMAC-SHA256(root secret, "namespace/name" and the epoch)

Only the operator holds the root secret. It gives each engine of a service the tokens of the current
epoch and the one before, in a file, so that a rotation leaves no moment in which a gateway that has
the newer or the older one is refused. A token opens the engines of its own service alone.
"""

import hashlib
import hmac

MIN_SECRET_BYTES = 16
"""A shorter root secret could be guessed from a token that leaked."""


def internal_token(root_secret: bytes, namespace: str, name: str, epoch: int) -> str:
    """The token of a service's epoch, as 64 hexadecimal digits.

    Parameters
    ----------
    root_secret
        At least `MIN_SECRET_BYTES` random bytes.
    namespace, name
        The service's; neither has a slash, as in Kubernetes.
    epoch
        From 0 on; raised to rotate.

    Raises
    ------
    ValueError
        The secret is too short, a name is empty or has a slash, or the epoch is negative.
    """
    if len(root_secret) < MIN_SECRET_BYTES:
        raise ValueError(f"the root secret needs at least {MIN_SECRET_BYTES} bytes")
    if not namespace or not name or "/" in namespace + name:
        raise ValueError("namespace and name must not be empty, nor have a slash")
    if epoch < 0:
        raise ValueError("epochs begin at 0")
    message = f"quire-internal-token/{namespace}/{name}/{epoch}".encode()
    return hmac.new(root_secret, message, hashlib.sha256).hexdigest()


def valid_tokens(root_secret: bytes, namespace: str, name: str, epoch: int) -> tuple[str, ...]:
    """What an engine accepts in this epoch: its token and that of the epoch before."""
    epochs = range(epoch, max(epoch - 2, -1), -1)
    return tuple(internal_token(root_secret, namespace, name, one) for one in epochs)
