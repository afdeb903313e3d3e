"""The operator's flags, and what keeps it from starting."""

import asyncio
import socket
from pathlib import Path

import pytest

from quire_operator import web
from quire_operator.__main__ import main
from quire_operator.cluster.api import ClusterApi
from quire_operator.errors import SettingsError
from quire_operator.reconciling.metrics import Metrics
from quire_operator.settings import parse


def test_flags_win_over_variables() -> None:
    variables = {"QUIRE_OPERATOR_WORKERS": "3", "QUIRE_OPERATOR_HTTP_PORT": "9000"}
    settings = parse(["--workers", "5", "--log-format", "text"], variables)

    assert (settings.workers, settings.http_port, settings.log_format) == (5, 9000, "text")


@pytest.mark.parametrize(("text", "is_on"), [("true", True), ("False", False), ("1", True)])
def test_a_variable_switches_as_a_flag_does(text: str, is_on: bool) -> None:
    assert parse([], {"QUIRE_OPERATOR_GATEWAY_TLS": text}).gateway_tls is is_on


def test_a_variable_that_is_neither_true_nor_false_is_refused() -> None:
    with pytest.raises(SettingsError, match="GATEWAY_TLS is 'on', not true or false"):
        parse([], {"QUIRE_OPERATOR_GATEWAY_TLS": "on"})


@pytest.mark.parametrize(
    ("flag", "value", "wanted"),
    [
        ("--log-format", "xml", "one of json, text"),
        ("--image-pull-policy", "always", "one of Always, IfNotPresent, Never"),
        ("--workers", "0", "a number above 0"),
        ("--lease-seconds", "nan", "a number above 0"),
        ("--http-port", "65536", "a port, 1 to 65535"),
        ("--token-epoch", "-1", "0 or more"),
        ("--scale-seconds", "-1", "0 or more"),
        ("--http-route-gateway", "public", "NAMESPACE/NAME or NAMESPACE/NAME/LISTENER"),
        ("--http-route-gateway", "a//b", "NAMESPACE/NAME or NAMESPACE/NAME/LISTENER"),
    ],
)
def test_a_value_out_of_range_is_refused_by_its_flags_name(
    flag: str, value: str, wanted: str
) -> None:
    with pytest.raises(SettingsError, match=f"{flag} is .*{value}.*: it takes {wanted}"):
        parse([flag, value], {})


def test_help_says_each_default_once(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--help"], {})
    text = " ".join(capsys.readouterr().out.split())

    assert "raise it to rotate them. Default: 0." in text
    assert "Then nodes are not looked at. --operator-namespace" in text


@pytest.mark.parametrize("content", [None, "", "a: [", "text", "kind: Config"])
def test_without_a_cluster_it_says_what_to_do(
    content: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kubeconfig = tmp_path / "config"
    if content is not None:
        kubeconfig.write_text(content)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    # the client reads KUBECONFIG when it is imported
    where = "kubernetes.aio.config.kube_config.KUBE_CONFIG_DEFAULT_LOCATION"
    monkeypatch.setattr(where, str(kubeconfig))

    with pytest.raises(SettingsError, match=r"(?s)no cluster to work in: .*set KUBECONFIG"):
        asyncio.run(ClusterApi.connect())


def test_a_wrong_flag_is_one_line_and_status_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--workers", "0"]) == 2

    said = capsys.readouterr().err
    assert said == "quire-operator: error: --workers is 0: it takes a number above 0\n"


def test_an_operator_that_would_not_see_its_gateway_does_not_start(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["--namespaces=a,b", "--gateway-namespace=c"]) == 2
    assert "--namespaces lacks c" in capsys.readouterr().err


def test_a_port_in_use_is_named() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(SettingsError, match=f"cannot listen on 127.0.0.1:{port}"):
            asyncio.run(web.serve("127.0.0.1", port, Metrics(), is_ready=lambda: True))
