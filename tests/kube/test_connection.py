"""Where the API server is: kubeconfig files and the pod's service account."""

import datetime
from pathlib import Path

import pytest
from kubernetes.config import incluster_config

from cpuplan.kube.client import KubeClient
from cpuplan.kube.connection import connect
from cpuplan.kube.errors import KubeConfigError
from tests.fakeapi import FakeApi


@pytest.fixture
def service_account(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a pod's service account, found by the in-cluster loader."""
    (tmp_path / "token").write_text("first-token")
    (tmp_path / "ca.crt").write_text("a certificate")
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", "10.0.0.1")
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", "443")
    monkeypatch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(tmp_path / "token"))
    monkeypatch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(tmp_path / "ca.crt"))
    return tmp_path


def test_a_pod_sends_its_service_account_token(service_account: Path) -> None:
    connection = connect()
    assert connection.authorization() == "bearer first-token"
    assert connection.base_url == "https://10.0.0.1:443"


def test_a_rotated_token_is_read_again_after_its_minute(service_account: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    connection = connect()
    (service_account / "token").write_text("second-token")
    in_two_minutes = datetime.datetime.now() + datetime.timedelta(minutes=2)

    class InTwoMinutes(datetime.datetime):
        @classmethod
        def now(cls, tz: datetime.tzinfo | None = None) -> datetime.datetime:  # type: ignore[override]
            return in_two_minutes

    monkeypatch.setattr("kubernetes.config.incluster_config.datetime.datetime", InTwoMinutes)
    assert connection.authorization() == "bearer second-token"


def test_outside_a_cluster_the_missing_service_account_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    with pytest.raises(KubeConfigError, match=r"no service account of a pod was found .* give --kubeconfig"):
        connect()


def test_a_missing_kubeconfig_is_named(tmp_path: Path) -> None:
    with pytest.raises(KubeConfigError, match=f"kubeconfig {tmp_path}/none does not exist; give an existing file"):
        connect(tmp_path / "none")


@pytest.mark.parametrize(
    "content",
    ["", "{}", "[1]", "{", "current-context: x", "\0", "current-context: x\ncontexts: 3"],
    ids=["empty", "no keys", "a list", "broken yaml", "no contexts", "binary", "contexts no list"],
)
def test_a_malformed_kubeconfig_is_named(tmp_path: Path, content: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(content)
    with pytest.raises(KubeConfigError, match=f"kubeconfig {path} is not usable: "):
        connect(path)


def test_a_kubeconfig_token_reaches_the_server(api: FakeApi, tmp_path: Path) -> None:
    path = api.write_kubeconfig(tmp_path / "kubeconfig")
    path.write_text(path.read_text().replace('"user": {}', '"user": {"token": "abc"}'))
    connection = connect(path)
    KubeClient(connection).list_objects("/api/v1/pods")
    connection.close()
    assert api.requests[0].headers["authorization"] == "Bearer abc"
