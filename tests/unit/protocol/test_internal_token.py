"""Internal tokens: one per service and epoch."""

import hashlib
import hmac

import pytest

from quire_engine.protocol.internal_token import internal_token, valid_tokens

SECRET = b"0123456789abcdef"


def test_a_token_is_the_hmac_of_service_and_epoch() -> None:
    message = b"quire-internal-token/default/chat/7"
    expected = hmac.new(SECRET, message, hashlib.sha256).hexdigest()

    assert internal_token(SECRET, "default", "chat", 7) == expected


def test_no_two_services_or_epochs_share_a_token() -> None:
    tokens = {
        internal_token(secret, namespace, name, epoch)
        for secret in (SECRET, SECRET + b"x")
        for namespace in ("default", "default1", "prod")
        for name in ("chat", "1chat")
        for epoch in (0, 1, 10)
    }

    assert len(tokens) == 2 * 3 * 2 * 3


def test_an_engine_takes_this_epoch_and_the_one_before() -> None:
    assert valid_tokens(SECRET, "default", "chat", 5) == (
        internal_token(SECRET, "default", "chat", 5),
        internal_token(SECRET, "default", "chat", 4),
    )
    assert valid_tokens(SECRET, "default", "chat", 0) == (
        internal_token(SECRET, "default", "chat", 0),
    )


@pytest.mark.parametrize(
    ("secret", "namespace", "name", "epoch"),
    [
        (b"short", "default", "chat", 0),
        (SECRET, "", "chat", 0),
        (SECRET, "a/b", "chat", 0),
        (SECRET, "default", "", 0),
        (SECRET, "default", "chat", -1),
    ],
)
def test_what_could_be_confused_or_guessed_is_refused(
    secret: bytes, namespace: str, name: str, epoch: int
) -> None:
    with pytest.raises(ValueError):
        internal_token(secret, namespace, name, epoch)
