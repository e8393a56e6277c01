"""The HTTP endpoints, over real HTTP."""

from __future__ import annotations

import socket
import urllib.error
import urllib.request

import pytest
from prometheus_client import CollectorRegistry

from cpuplan.agent.endpoints import AddressError, Endpoints
from cpuplan.agent.metrics import AgentMetrics


def get(port: int, path: str) -> tuple[int, str]:
    """Status and body of a GET."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=10) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def endpoints(*, alive: str | None = None, ready: str | None = None) -> Endpoints:
    """Endpoints on a free port whose probes say these sentences."""
    return Endpoints("127.0.0.1:0", AgentMetrics().registry, alive=lambda: alive, ready=lambda: ready)


def test_all_is_well() -> None:
    with endpoints() as served:
        assert get(served.port, "/healthz") == (200, "ok\n")
        assert get(served.port, "/readyz?verbose") == (200, "ok\n")


def test_trouble_is_said_in_a_sentence() -> None:
    with endpoints(alive="the loop has not turned for 200 s", ready="the kubelet cannot be asked") as served:
        assert get(served.port, "/healthz") == (503, "the loop has not turned for 200 s\n")
        assert get(served.port, "/readyz") == (503, "the kubelet cannot be asked\n")


def test_metrics_have_every_counter_before_anything_happened() -> None:
    with endpoints() as served:
        status, text = get(served.port, "/metrics")
    assert status == 200
    assert 'cpuplan_agent_patches_total{result="refused"} 0.0' in text
    assert "cpuplan_agent_podresources_errors_total 0.0" in text


def test_other_paths_are_told_what_there_is() -> None:
    with endpoints() as served:
        assert get(served.port, "/") == (404, "expected /metrics, /healthz or /readyz\n")


@pytest.mark.parametrize("address", ["", "9465", "localhost", "host:port", "0.0.0.0:99999", "0.0.0.0:-1"])
def test_a_malformed_address_is_a_sentence(address: str) -> None:
    with pytest.raises(AddressError, match="is not HOST:PORT, such as"):
        Endpoints(address, CollectorRegistry(), alive=lambda: None, ready=lambda: None)


def test_an_address_in_use_is_a_sentence() -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(AddressError, match=f"metrics address {address} cannot be listened on: Address already"):
            Endpoints(address, CollectorRegistry(), alive=lambda: None, ready=lambda: None)
