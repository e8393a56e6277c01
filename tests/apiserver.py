"""A real API server for tests: etcd and kube-apiserver on loopback, with RBAC and Node authorization.

What belongs here: starting and stopping the two programs, credentials for them, one plain HTTP call.
No controllers and no kubelet run, so nobody creates default service accounts (`ApiServer.namespace` does),
nobody schedules, and a deleted namespace stays in Terminating: give every test its own namespace instead.

Source: the flags are those of kube-apiserver 1.37 and etcd 3.7 (Debian's etcd 3.4 serves too).
"""

from __future__ import annotations

import functools
import http.client
import json
import os
import re
import secrets
import ssl
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest

from tests.cluster.console import ClusterError
from tests.cluster.go_programs import built
from tests.processes import accepts, free_ports, running_process, wait_until_ready


@functools.cache
def find_program(name: str) -> Path:
    """The path of a Kubernetes program: in the folder that CPUPLAN_PROGRAMS names, else the one of tests/cluster.

    Where there is none and none can be built, the test skips and says how to enable it.
    """
    folder = os.environ.get("CPUPLAN_PROGRAMS")
    if folder is not None:
        path = Path(folder, name)
        if not path.is_file():
            pytest.skip(f"CPUPLAN_PROGRAMS is {folder}, and has no {name}: unset it, or put {name} there")
        return path
    try:
        return built({name}) / name
    except ClusterError as error:
        pytest.skip(f"needs {name}: {error}")


@dataclass(frozen=True, slots=True)
class Answer:
    """What the API server said: HTTP status, the parsed body (the raw text where it is no JSON), its warnings."""

    status: int
    body: Any
    warnings: tuple[str, ...] = ()

    @property
    def message(self) -> str:
        """The text of a refusal; empty for anything else."""
        return str(self.body.get("message", "")) if isinstance(self.body, dict) and self.status >= 400 else ""


@dataclass(frozen=True, slots=True)
class ApiServer:
    """A running API server: its address, its files, and ways to talk to it as anybody.

    `kubeconfig` is the path of an administrator's (group system:masters).
    """

    port: int
    directory: Path
    certificate: Path
    admin_token: str
    kubeconfig: Path
    _trust: ssl.SSLContext = field(repr=False)

    @property
    def url(self) -> str:
        """The address, as a kubeconfig wants it."""
        return f"https://127.0.0.1:{self.port}"

    def call(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        token: str | None = None,
        query: Mapping[str, str] | None = None,
        content_type: str = "application/json",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        """The answer, also when it is a refusal, to one call of the holder of `token` (administrator)."""
        connection = http.client.HTTPSConnection("127.0.0.1", self.port, context=self._trust, timeout=30)
        target = path + ("?" + urlencode(query) if query else "")
        authorization = {"Authorization": f"Bearer {token or self.admin_token}", "Content-Type": content_type}
        sent = None if body is None else json.dumps(body)
        try:
            connection.request(method, target, sent, {**authorization, **(headers or {})})
            response = connection.getresponse()
            text = response.read().decode()
        finally:
            connection.close()
        is_json = response.headers.get_content_type() == "application/json"
        warnings = tuple(map(_warning_text, response.headers.get_all("Warning", [])))
        return Answer(response.status, json.loads(text) if is_json else text, warnings)

    def must(self, method: str, path: str, body: object = None, **options: Any) -> Any:
        """The body of a call that has to succeed; AssertionError with the server's words otherwise."""
        answer = self.call(method, path, body, **options)
        assert answer.status < 300, f"{method} {path}: {answer.status} {answer.message or answer.body}"
        return answer.body

    def ensure(self, collection: str, body: Mapping[str, Any]) -> Any:
        """The object of that name in that collection, created now unless it exists already."""
        answer = self.call("POST", collection, body)
        if answer.status == http.HTTPStatus.CONFLICT:
            return self.must("GET", f"{collection}/{body['metadata']['name']}")
        assert answer.status < 300, f"POST {collection}: {answer.status} {answer.message}"
        return answer.body

    def namespace(self, name: str, labels: Mapping[str, str] | None = None) -> str:
        """The name, of a namespace that exists now and has its default service account."""
        metadata = {"name": name, "labels": dict(labels or {})}
        self.ensure("/api/v1/namespaces", {"metadata": metadata})
        self.service_account("default", name)
        return name

    def service_account(self, name: str, namespace: str) -> str:
        """The user name of a service account that exists now (its namespace must exist)."""
        self.ensure(f"/api/v1/namespaces/{namespace}/serviceaccounts", {"metadata": {"name": name}})
        return f"system:serviceaccount:{namespace}:{name}"

    def node(self, name: str, labels: Mapping[str, str] | None = None) -> str:
        """The UID of a Node object that exists now (nothing runs on it)."""
        made = self.ensure("/api/v1/nodes", {"metadata": {"name": name, "labels": dict(labels or {})}})
        return str(made["metadata"]["uid"])

    def token(self, account: str, namespace: str, *, node: str | None = None, seconds: int = 3600) -> str:
        """A token of a service account (created if missing).

        Bound to a node (created if missing) it carries authentication.kubernetes.io/node-name, as an agent's.
        """
        self.service_account(account, namespace)
        spec: dict[str, Any] = {"expirationSeconds": seconds}
        if node is not None:
            spec["boundObjectRef"] = {"kind": "Node", "name": node, "uid": self.node(node)}
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token"
        return str(self.must("POST", path, {"spec": spec})["status"]["token"])

    def kubeconfig_for(self, token: str) -> Path:
        """The path of a new kubeconfig that acts with `token`."""
        path = self.directory / f"kubeconfig-{secrets.token_hex(4)}.json"
        _write_kubeconfig(path, self.url, self.certificate, token)
        return path

    def kubectl(
        self, *arguments: str, stdin: str | None = None, kubeconfig: Path | None = None, check: bool = True
    ) -> subprocess.CompletedProcess[str]:
        """kubectl's result, as the administrator unless another kubeconfig is given; see `call` for speed."""
        done = subprocess.run(
            [str(find_program("kubectl")), "--kubeconfig", str(kubeconfig or self.kubeconfig), *arguments],
            input=stdin, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
        assert not check or done.returncode == 0, f"kubectl {' '.join(arguments)}: {done.stderr}"
        return done


@contextmanager
def running_api_server(directory: Path, *, flags: Sequence[str] = ()) -> Iterator[ApiServer]:
    """A fresh API server whose files lie in `directory`; gone, with its etcd, when the block ends.

    The steps:
    1. Make a key pair: the serving certificate, and the signer of service account tokens.
    2. Start etcd, wait for its port.
    3. Start the API server, wait for /readyz.
    4. Stop in the reverse order: an API server whose etcd is gone lingers for up to a minute.

    Args:
        directory: an empty folder.
        flags: further kube-apiserver flags; a repeated flag outranks ours.

    Raises:
        tests.processes.NotReadyError: one of the two did not start.
    """
    programs = find_program("etcd"), find_program("kube-apiserver")
    certificate, key = _make_key_pair(directory)
    etcd_port, peer_port, port = free_ports(3)
    admin_token = secrets.token_hex(16)
    (directory / "tokens.csv").write_text(f'{admin_token},test-admin,test-admin,"system:masters"\n')
    trust = ssl.create_default_context(cafile=str(certificate))
    kubeconfig = directory / "kubeconfig.json"
    server = ApiServer(port, directory, certificate, admin_token, kubeconfig, trust)
    _write_kubeconfig(kubeconfig, server.url, certificate, admin_token)
    etcd_arguments = [
        str(programs[0]), "--data-dir", str(directory / "etcd"), "--unsafe-no-fsync", "--log-level=warn",
        f"--listen-client-urls=http://127.0.0.1:{etcd_port}", f"--advertise-client-urls=http://127.0.0.1:{etcd_port}",
        f"--listen-peer-urls=http://127.0.0.1:{peer_port}",
    ]  # fmt: skip
    server_arguments = [
        str(programs[1]), f"--etcd-servers=http://127.0.0.1:{etcd_port}", f"--secure-port={port}",
        "--bind-address=127.0.0.1", "--advertise-address=127.0.0.1", "--endpoint-reconciler-type=none",
        f"--tls-cert-file={certificate}", f"--tls-private-key-file={key}", f"--cert-dir={directory}",
        f"--token-auth-file={directory / 'tokens.csv'}",
        "--service-account-issuer=https://kubernetes.default.svc.cluster.local",
        f"--service-account-key-file={certificate}", f"--service-account-signing-key-file={key}",
        "--service-cluster-ip-range=10.96.0.0/16", "--authorization-mode=Node,RBAC",
        "--enable-admission-plugins=NodeRestriction", "--allow-privileged=true", *flags,
    ]  # fmt: skip
    with (
        running_process(etcd_arguments, directory / "etcd.log") as etcd,
        running_process(server_arguments, directory / "kube-apiserver.log") as api_server,
    ):
        wait_until_ready(etcd, directory / "etcd.log", lambda: accepts(etcd_port))
        wait_until_ready(api_server, directory / "kube-apiserver.log", lambda: _is_ready(server))
        yield server


def _make_key_pair(directory: Path) -> tuple[Path, Path]:
    """Self-signed certificate for 127.0.0.1 and localhost, and its key."""
    certificate, key = directory / "server.crt", directory / "server.key"
    subprocess.run(
        [
            "openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes",
            "-subj", "/CN=cpuplan-test", "-addext", "subjectAltName=IP:127.0.0.1,DNS:localhost", "-days", "2",
            "-keyout", str(key), "-out", str(certificate),
        ],
        check=True, capture_output=True,
    )  # fmt: skip
    return certificate, key


def _write_kubeconfig(path: Path, url: str, certificate: Path, token: str) -> None:
    """JSON is YAML: every client reads it."""
    path.write_text(
        json.dumps(
            {
                "apiVersion": "v1",
                "kind": "Config",
                "clusters": [{"name": "test", "cluster": {"server": url, "certificate-authority": str(certificate)}}],
                "users": [{"name": "test", "user": {"token": token}}],
                "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
                "current-context": "test",
            }
        )
    )
    path.chmod(0o600)


def _warning_text(header: str) -> str:
    """The text in a Warning header, a quoted string (RFC 9111, 5.5)."""
    return re.sub(r"\\(.)", r"\1", header.partition('"')[2].rpartition('"')[0])


def _is_ready(server: ApiServer) -> bool:
    """Ready, and the default namespace is there (the first thing most tests need)."""
    try:
        return all(server.call("GET", path).status == 200 for path in ("/readyz", "/api/v1/namespaces/default"))
    except OSError:
        return False
