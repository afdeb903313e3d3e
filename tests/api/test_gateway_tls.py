"""TLS of the clients' port: who gets in, and certificates that change while it runs."""

import datetime as dt
import http.client
import os
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from hack.cluster.certificates import Authority, KeyPair
from tests.api.gateways import GATEWAY, RunningGateway, service
from tests.api.servers import RunningServer, wait_until
from tests.api.test_gateway import COMPLETIONS, completion

EXPIRY = "quire_gateway_tls_certificate_expiry_timestamp_seconds"
EXPIRED = "expired at 2"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path / "authority")
    made.folder.mkdir()
    made.create()
    return made


def put(pair: KeyPair, folder: Path) -> tuple[str, ...]:
    """Put a pair where the gateway looks for it; returns the flags."""
    chain, key = folder / "tls.crt", folder / "tls.key"
    for source, target in ((pair.certificate, chain), (pair.key, key)):
        fresh = target.with_suffix(".new")
        shutil.copy(source, fresh)
        fresh.rename(target)
    return "--tls-certificate-file", str(chain), "--tls-key-file", str(key)


def port_of(gateway: RunningGateway) -> int:
    return int(gateway.url.rpartition(":")[2])


def connect(gateway: RunningGateway, context: ssl.SSLContext, name: str | None) -> ssl.SSLSocket:
    plain = socket.create_connection(("127.0.0.1", port_of(gateway)), timeout=60)
    return context.wrap_socket(plain, server_hostname=name)


def subject(gateway: RunningGateway, context: ssl.SSLContext) -> str:
    """The common name of the certificate that a new connection gets."""
    with connect(gateway, context, "gateway.example") as made:
        found: Any = made.getpeercert()
    return str(dict(pair for (pair,) in found["subject"])["commonName"])


def test_a_certificate_that_changes_is_used_and_connections_stay(
    server: RunningServer, authority: Authority, tmp_path: Path
) -> None:
    hosts = ("gateway.example", "127.0.0.1")
    first = authority.issue("first", "first", hosts=hosts)
    second = authority.issue("second", "second", hosts=hosts)
    log = tmp_path / "log"
    context = ssl.create_default_context(cafile=str(authority.own.certificate))
    context.set_alpn_protocols(["h2", "http/1.1"])

    flags = put(first, tmp_path)
    with RunningGateway(tmp_path / "r.json", [service([server])], *flags, stderr=log) as gateway:
        assert gateway.url.startswith("https://")
        wait_until(lambda: gateway.num_eligible() == 1)
        with connect(gateway, context, "gateway.example") as made:
            assert made.selected_alpn_protocol() == "http/1.1"
        assert subject(gateway, context) == "first"
        kept = http.client.HTTPSConnection(
            "127.0.0.1", port_of(gateway), context=context, timeout=60
        )
        kept.request("GET", "/v1/models")
        assert kept.getresponse().read()

        put(KeyPair(second.certificate, first.key), tmp_path)  # a pair that is none
        wait_until(lambda: "the TLS certificate stays as it was" in log.read_text())
        assert subject(gateway, context) == "first"

        chain = tmp_path / "tls.crt"
        chain.unlink()
        os.mkfifo(chain)  # to open it would wait for ever
        wait_until(lambda: "tls.crt: it is not a regular file" in log.read_text())
        assert subject(gateway, context) == "first"

        put(second, tmp_path)
        wait_until(lambda: subject(gateway, context) == "second")
        kept.request("GET", "/v1/models")
        assert kept.getresponse().read()
        kept.close()

        context.maximum_version = ssl.TLSVersion.TLSv1_2
        body = completion(stream=True)
        with httpx.Client(verify=context, timeout=60) as client:
            answer = client.post(gateway.url + COMPLETIONS, json=body)
        assert answer.text.endswith("data: [DONE]\n\n")


def test_a_worker_that_starts_while_the_files_are_bad_has_the_last_good_certificate(
    authority: Authority, tmp_path: Path
) -> None:
    hosts = ("gateway.example", "127.0.0.1")
    first, second, third = (authority.issue(n, n, hosts=hosts) for n in ("one", "two", "three"))
    log = tmp_path / "log"
    context = ssl.create_default_context(cafile=str(authority.own.certificate))
    flags = (*put(first, tmp_path), "--workers", "2")
    with RunningGateway(tmp_path / "r.json", [service([])], *flags, stderr=log) as gateway:

        def subjects() -> set[str]:
            return {subject(gateway, context) for _ in range(16)}  # of both workers

        put(second, tmp_path)
        wait_until(lambda: subjects() == {"two"})
        put(KeyPair(first.certificate, second.key), tmp_path)
        wait_until(lambda: "new workers get the TLS certificate of before" in log.read_text())
        for worker in gateway.children("worker"):
            os.kill(worker, signal.SIGKILL)
        wait_until(lambda: log.read_text().count("the TLS certificate is the last good one") == 2)
        assert subjects() == {"two"}
        put(third, tmp_path)
        wait_until(lambda: subjects() == {"three"})


@pytest.mark.parametrize("workers", ["1", "2"])
def test_an_expired_certificate_replaces_no_valid_one_and_the_end_is_a_metric(
    authority: Authority, tmp_path: Path, workers: str
) -> None:
    day, hosts = dt.timedelta(days=1), ("gateway.example",)
    good = authority.issue("good", "good", hosts=hosts, valid=(-day, 20 * day))
    expired = authority.issue("old", "old", hosts=hosts, valid=(-9 * day, -day))
    better = authority.issue("new", "new", hosts=hosts, valid=(-day, 60 * day))
    log = tmp_path / "log"
    context = ssl.create_default_context(cafile=str(authority.own.certificate))
    flags = (*put(good, tmp_path), "--workers", workers)
    with RunningGateway(tmp_path / "r.json", [service([])], *flags, stderr=log) as gateway:

        def days_left() -> int:
            (line,) = re.findall(rf"^{EXPIRY} (.*)$", gateway.manage("/metrics").text, re.MULTILINE)
            left = dt.datetime.fromtimestamp(float(line), dt.UTC) - dt.datetime.now(dt.UTC)
            return round(left / day)

        assert days_left() == 20
        put(expired, tmp_path)
        refusals = 1 if workers == "1" else 3  # of workers and of the one that decides
        wait_until(lambda: log.read_text().count(f"tls.crt {EXPIRED}") == refusals)
        assert subject(gateway, context) == "good"
        assert days_left() == 20
        put(better, tmp_path)
        wait_until(lambda: subject(gateway, context) == "new")
        wait_until(lambda: days_left() == 60)


def test_without_tls_no_metric_tells_of_a_certificate(tmp_path: Path) -> None:
    with RunningGateway(tmp_path / "r.json", [service([])]) as gateway:
        assert EXPIRY not in gateway.manage("/metrics").text


def test_what_is_older_or_no_tls_gets_no_answer(authority: Authority, tmp_path: Path) -> None:
    flags = put(authority.issue("one", "one", hosts=("127.0.0.1",)), tmp_path)
    with RunningGateway(tmp_path / "r.json", [service([])], *flags) as gateway:
        old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
        old.set_ciphers("ALL:@SECLEVEL=0")
        with pytest.warns(DeprecationWarning, match="TLSv1_1"):
            old.maximum_version = ssl.TLSVersion.TLSv1_1
        with pytest.raises(ssl.SSLError):
            connect(gateway, old, None)
        with socket.create_connection(("127.0.0.1", port_of(gateway)), timeout=60) as plain:
            plain.sendall(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n")
            assert b"HTTP" not in plain.recv(1000)


def test_files_that_are_no_certificate_are_an_error_at_the_start(
    authority: Authority, tmp_path: Path
) -> None:
    pair, other = authority.issue("a", "a"), authority.issue("b", "b")
    text = tmp_path / "text"
    text.write_text("no PEM")
    routing = tmp_path / "r.json"
    routing.write_text("[]")
    for chain, key, said in (
        (tmp_path / "none", pair.key, "cannot read"),
        (pair.certificate, tmp_path, "cannot read"),
        (text, pair.key, "no certificate with its key"),
        (pair.certificate, other.key, "no certificate with its key"),
        (pair.certificate, None, "need each other"),
    ):
        flags = ["--tls-certificate-file", str(chain)]
        flags += ["--tls-key-file", str(key)] if key else []
        ran = subprocess.run(
            [sys.executable, *GATEWAY, "--routing", str(routing), "--port", "0", *flags],
            capture_output=True,
            text=True,
            check=False,
        )
        assert ran.returncode == 2
        assert said in ran.stderr
