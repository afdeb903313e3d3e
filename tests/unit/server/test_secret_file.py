"""Files of secrets: what they may hold, and that a change is seen however it is made."""

import logging
from pathlib import Path

import pytest

from quire_engine.errors import ConfigError
from quire_engine.server.secret_file import CHECK_SECONDS, MAX_SECRETS, Digests, SecretFile, digest


class Clock:
    """A clock that stands until it is moved."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "tokens"
    file.write_text("# epoch 5, and the one before\nfive\n\n  four  \n")
    return file


def has(file: SecretFile, *secrets: str) -> list[bool]:
    return [file.has(digest(secret.encode())) for secret in secrets]


def test_every_line_is_a_secret_but_comments_and_empty_ones(path: Path) -> None:
    file = SecretFile(path)

    assert has(file, "five", "four", "six", "", "# epoch 5, and the one before") == [
        *(True, True, False, False, False)
    ]


def test_a_rotation_is_seen_at_once_by_the_new_and_in_a_second_by_the_old(path: Path) -> None:
    clock = Clock()
    file = SecretFile(path, clock)
    path.write_text("six\nfive\n")

    assert has(file, "six") == [True]
    path.write_text("seven\nsix\n")
    assert has(file, "five") == [True]  # not looked at again yet
    clock.now += CHECK_SECONDS
    assert has(file, "five", "six", "seven") == [False, True, True]


def test_a_swapped_link_is_seen_as_kubernetes_makes_it(tmp_path: Path) -> None:
    for name, secret in (("..1", "one"), ("..2", "two")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "tokens").write_text(secret)
    (tmp_path / "..data").symlink_to("..1")
    (tmp_path / "tokens").symlink_to("..data/tokens")
    clock = Clock()
    file = SecretFile(tmp_path / "tokens", clock)
    assert has(file, "one", "two") == [True, False]

    (tmp_path / "..new").symlink_to("..2")
    (tmp_path / "..new").replace(tmp_path / "..data")
    clock.now += CHECK_SECONDS

    assert has(file, "one", "two") == [False, True]


def test_a_file_that_is_gone_keeps_what_it_said_and_is_told_once(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = SecretFile(path)
    path.unlink()
    with caplog.at_level(logging.ERROR):
        assert has(file, "five", "six", "seven") == [True, False, False]
    assert len(caplog.records) == 1

    path.write_text("six")
    assert has(file, "six", "five") == [True, False]


def test_a_file_without_a_secret_lets_nobody_in(path: Path) -> None:
    clock = Clock()
    file = SecretFile(path, clock)
    path.write_text("# nothing\n")
    clock.now += CHECK_SECONDS

    assert has(file, "five", "four", "") == [False, False, False]


def test_a_line_that_is_no_secret_changes_nothing(
    path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = SecretFile(path)
    path.write_text("six\nhidden secret\n")

    assert has(file, "six", "five") == [False, True]
    assert "line 2" in caplog.text
    assert "hidden" not in caplog.text


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "has no secret in it"),
        (b"# a comment\n\n", "has no secret in it"),
        (b"fine\nhidden with spaces\n", "line 2 is no secret"),
        ("hidden\u00e9".encode(), "line 1 is no secret"),
        (b"hidden\x00", "line 1 is no secret"),
        (b"s\n" * (MAX_SECRETS + 1), "has more than"),
        (b"hidden" * 200_000, "too large"),
    ],
)
def test_a_server_does_not_start_with_a_wrong_file(
    path: Path, content: bytes, message: str
) -> None:
    path.write_bytes(content)
    with pytest.raises(ConfigError, match=message) as caught:
        SecretFile(path)
    assert "hidden" not in str(caught.value)


def test_a_server_does_not_start_without_the_file(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        SecretFile(tmp_path / "none")


def test_nothing_is_among_no_secrets() -> None:
    assert not Digests().has(digest(b""))
    assert Digests(["a", "b"]).has(digest(b"b"))
