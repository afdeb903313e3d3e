"""Which certificate clients are shown, by its dates, and what the log says of it."""

import datetime as dt
import logging
import shutil
from pathlib import Path

import pytest

from hack.cluster.certificates import Authority, KeyPair
from quire_gateway.http.tls import Certificate
from quire_gateway.http.validity import read_validity
from quire_gateway.workers.kept_certificate import KeptCertificate

DAY = dt.timedelta(days=1)
EXPIRED, COMING, SHORT, GOOD = (-9 * DAY, -DAY), (DAY, 99 * DAY), (-DAY, 3 * DAY), (-DAY, 90 * DAY)
BETTER = (-DAY, 95 * DAY)


class Files:
    """A chain and its key where a gateway looks for them, and a clock of its own."""

    def __init__(self, folder: Path) -> None:
        self.chain, self.key = folder / "tls.crt", folder / "tls.key"
        self.days_later = 0.0
        self._authority = Authority(folder / "authority")
        self._authority.create()
        self._num = 0

    def put(self, valid: tuple[dt.timedelta, dt.timedelta]) -> float:
        """Put a pair that is valid so; returns its end, in Unix seconds."""
        self._num += 1
        pair = self._authority.issue(str(self._num), "gateway", valid=valid)
        self._copy(pair)
        return read_validity(pair.certificate.read_bytes()).not_after

    def _copy(self, pair: KeyPair) -> None:
        for source, target in ((pair.certificate, self.chain), (pair.key, self.key)):
            fresh = target.with_suffix(".new")
            shutil.copy(source, fresh)
            fresh.rename(target)

    def now(self) -> float:
        """Unix seconds."""
        return dt.datetime.now(dt.UTC).timestamp() + self.days_later * DAY.total_seconds()

    def read(self, kept: Path | None = None) -> Certificate:
        """As at a start."""
        return Certificate(self.chain, self.key, kept, clock=self.now)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.mark.parametrize(
    ("valid", "level", "words"),
    [
        (GOOD, logging.INFO, "it is valid until 2"),
        (SHORT, logging.WARNING, "only: renew it"),
        (EXPIRED, logging.ERROR, "expired at 2"),
        (COMING, logging.ERROR, "is not valid before 2"),
    ],
)
def test_what_is_read_at_a_start_is_used_and_the_log_says_until_when_it_is_valid(
    files: Files,
    caplog: pytest.LogCaptureFixture,
    valid: tuple[dt.timedelta, dt.timedelta],
    level: int,
    words: str,
) -> None:
    caplog.set_level(logging.INFO)
    until = files.put(valid)
    assert files.read().valid_until == until
    (record,) = caplog.records
    assert record.levelno == level
    assert words in record.getMessage()
    assert str(files.chain) in record.getMessage()


@pytest.mark.parametrize("bad", [EXPIRED, COMING])
def test_one_that_clients_refuse_replaces_no_valid_one(
    files: Files, caplog: pytest.LogCaptureFixture, bad: tuple[dt.timedelta, dt.timedelta]
) -> None:
    good = files.put(GOOD)
    used, kept = files.read(), KeptCertificate(files.chain, files.key)
    until = files.put(bad)
    for _ in range(3):
        used.renew()
        kept.renew()
    assert used.valid_until == good
    said = [one.getMessage() for one in caplog.records]
    assert len(said) == 1, said  # once, and not with every look
    assert "stays as it was" in said[0]
    assert "put one that is valid there" in said[0]

    # a worker that starts now has the kept one
    again = files.read(Path(f"/proc/self/fd/{kept.descriptor}"))
    assert again.valid_until == good
    assert "is the last good one" in caplog.records[-1].getMessage()

    better = files.put(BETTER)
    for one in (used, kept, again):
        one.renew()
    assert used.valid_until == again.valid_until == better != until
    assert files.read(Path(f"/proc/self/fd/{kept.descriptor}")).valid_until == better


def test_one_of_tomorrow_is_used_from_tomorrow_on(files: Files) -> None:
    good = files.put(GOOD)
    used = files.read()
    coming = files.put(COMING)
    used.renew()
    assert used.valid_until == good
    files.days_later = 2
    used.renew()
    assert used.valid_until == coming


def test_where_both_are_expired_the_newer_one_is_used(
    files: Files, caplog: pytest.LogCaptureFixture
) -> None:
    short = files.put(SHORT)
    used = files.read()
    newer = files.put(EXPIRED)
    used.renew()
    assert used.valid_until == short
    files.days_later = 4
    used.renew()
    assert used.valid_until == newer
    assert "there is no better one" in caplog.records[-1].getMessage()


def test_a_certificate_without_dates_that_can_be_read_is_used(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert read_validity(b"-----BEGIN TRUSTED CERTIFICATE-----\n").trouble(1e12) == ""
    assert "not known until when" in caplog.text
