"""Where the API server is: kubeconfig files and the pod's service account."""

import datetime
import json
import logging
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


@pytest.mark.parametrize("content", ["[1]", "hello", "current-context: x\ncontexts: 3"])
def test_yaml_that_is_no_kubeconfig_is_named_without_words_of_python(tmp_path: Path, content: str) -> None:
    path = tmp_path / "kubeconfig"
    path.write_text(content)
    with pytest.raises(KubeConfigError, match=r"is not usable: expected YAML with clusters, users and contexts$"):
        connect(path)


def test_a_credential_plugin_that_fails_is_an_error_and_logs_nothing(
    api: FakeApi, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """The package would log it and go on as nobody."""
    handlers = list(logging.getLogger().handlers)
    path = api.write_kubeconfig(tmp_path / "kubeconfig")
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "/none", "interactiveMode": "Never"}
    path.write_text(path.read_text().replace('"user": {}', f'"user": {json.dumps({"exec": plugin})}'))

    with pytest.raises(KubeConfigError, match=r"its credential plugin gave no credentials: .*No such file.*'/none'"):
        connect(path)

    assert (capfd.readouterr().err, logging.getLogger().handlers) == ("", handlers)


def test_a_server_without_a_scheme_is_named(api: FakeApi, tmp_path: Path) -> None:
    path = api.write_kubeconfig(tmp_path / "kubeconfig")
    path.write_text(path.read_text().replace("http://", ""))

    with pytest.raises(KubeConfigError, match=r"its server is 127\.0\.0\.1:\d+, expected .* https://HOST:6443"):
        connect(path)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"current-context": None}, "it names no current-context; choose test with kubectl config use-context"),
        ({"current-context": ""}, "it names no current-context; choose test with kubectl config use-context"),
        (
            {"current-context": "gone"},
            "its current-context gone is none of its contexts; choose test with kubectl config use-context",
        ),
        (
            {"current-context": "", "contexts": []},
            "it names no current-context; it has no context to choose from; add one with kubectl config set-context",
        ),
    ],
)
def test_a_kubeconfig_without_a_context_in_force_is_told_what_to_choose(
    api: FakeApi, tmp_path: Path, change: dict[str, object], sentence: str
) -> None:
    path = api.write_kubeconfig(tmp_path / "kubeconfig")
    document = json.loads(path.read_text()) | change
    document["contexts"] = [context | {"name": "test"} for context in document["contexts"]]
    path.write_text(json.dumps({key: value for key, value in document.items() if value is not None}))

    with pytest.raises(KubeConfigError) as caught:
        connect(path)

    assert str(caught.value) == f"kubeconfig {path} is not usable: {sentence}"


def test_several_kubeconfigs_are_merged_and_missing_ones_passed_over(api: FakeApi, tmp_path: Path) -> None:
    """As kubectl does with KUBECONFIG."""
    whole = json.loads(api.write_kubeconfig(tmp_path / "whole").read_text())
    parts = [{**whole, "clusters": []}, {"clusters": whole["clusters"]}]
    files = [tmp_path / "first", tmp_path / "none", tmp_path / "second"]
    for file, part in zip((files[0], files[2]), parts, strict=True):
        file.write_text(json.dumps(part))

    connection = connect(files)

    assert connection.base_url == api.url
    connection.close()


def test_when_no_kubeconfig_is_there_all_are_named(tmp_path: Path) -> None:
    with pytest.raises(KubeConfigError, match=f"kubeconfig {tmp_path}/a, {tmp_path}/b does not exist"):
        connect([tmp_path / "a", tmp_path / "b"])


def test_a_kubeconfig_token_reaches_the_server(api: FakeApi, tmp_path: Path) -> None:
    path = api.write_kubeconfig(tmp_path / "kubeconfig")
    path.write_text(path.read_text().replace('"user": {}', '"user": {"token": "abc"}'))
    connection = connect(path)
    KubeClient(connection).list_objects("/api/v1/pods")
    connection.close()
    assert api.requests[0].headers["authorization"] == "Bearer abc"
