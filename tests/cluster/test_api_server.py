"""The smallest cluster: an API server as real as any, and controllers."""

import json

from hack.cluster.catalogue import KUBERNETES
from hack.cluster.cluster import Cluster
from hack.cluster.kubeconfig import write_kubeconfig
from tests.api.servers import wait_until


def test_the_api_server_answers_and_says_its_version(api_cluster: Cluster) -> None:
    version = json.loads(api_cluster.api.call("version", "--output=json"))
    assert version["serverVersion"]["gitVersion"] == KUBERNETES.version
    assert version["clientVersion"]["gitVersion"] == KUBERNETES.version


def test_a_user_may_do_what_a_role_allows_and_nothing_else(api_cluster: Cluster) -> None:
    api = api_cluster.api
    api.call("create", "role", "looker", "--verb=get,list", "--resource=configmaps")
    api.call("create", "rolebinding", "looker", "--role=looker", "--user=ada")
    server = f"https://127.0.0.1:{api_cluster.config.ports.api}"
    path = api_cluster.folder / "ada.kubeconfig"
    ada = f"--kubeconfig={write_kubeconfig(path, api_cluster.authority, server, 'ada')}"
    # the authorizer learns of roles by a watch
    wait_until(lambda: api.run(ada, "get", "configmaps").returncode == 0, seconds=30)
    refused = api.run(ada, "get", "secrets")
    assert refused.returncode != 0
    assert 'User "ada" cannot list resource "secrets"' in refused.stderr
    api.call("delete", "role/looker", "rolebinding/looker")


def test_a_namespace_is_deleted_with_all_that_is_in_it(api_cluster: Cluster) -> None:
    api = api_cluster.api
    api.call("create", "namespace", "short-lived")
    api.call("create", "configmap", "inside", "--namespace=short-lived")
    api.call("delete", "namespace", "short-lived", "--timeout=60s")
    assert api.get("/api/v1/namespaces/short-lived") is None
    assert api.get("/api/v1/namespaces/short-lived/configmaps/inside") is None


def test_a_pod_stays_pending_for_there_is_no_scheduler(api_cluster: Cluster) -> None:
    api = api_cluster.api
    api.call("run", "lonely", "--image=localhost/none:1")
    pod = api.get("/api/v1/namespaces/default/pods/lonely")
    assert pod["status"]["phase"] == "Pending"
    assert "nodeName" not in pod["spec"]
    api.call("delete", "pod", "lonely", "--force", "--grace-period=0")
