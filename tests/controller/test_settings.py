"""Flags, their environment, and what is refused."""

import argparse
from pathlib import Path

import pytest

from cpuplan.controller.command import run
from cpuplan.controller.settings import OperatorSettings, add_arguments, settings_from
from cpuplan.process.address import Address


def parsed(*flags: str, environment: dict[str, str] | None = None) -> argparse.Namespace:
    """The flags as argparse reads them."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    add_arguments(parser, environment or {})
    return parser.parse_args(flags)


def test_the_defaults_need_only_the_namespace() -> None:
    settings = settings_from(parsed("--namespace", "cpuplan", "--identity", "operator-0"))
    assert settings == OperatorSettings(
        namespace="cpuplan",
        configmap="cpuplan",
        lease="cpuplan-operator",
        identity="operator-0",
        metrics_address=Address("0.0.0.0", 9466),
        kubeconfig=None,
        log_level="info",
        agent_selector="app.kubernetes.io/name=cpuplan,app.kubernetes.io/component=agent",
        write_interval_seconds=2,
        resync_seconds=600,
        plan_wait_seconds=30,
        init_wait_seconds=15,
        lease_seconds=30,
    )


def test_a_pod_tells_its_namespace_and_name_by_the_environment() -> None:
    settings = settings_from(parsed(environment={"POD_NAMESPACE": "cpuplan", "POD_NAME": "operator-0"}))
    assert (settings.namespace, settings.identity) == ("cpuplan", "operator-0")


def test_every_flag_has_an_environment_variable_that_it_outranks() -> None:
    environment = {"CPUPLAN_NAMESPACE": "other", "CPUPLAN_RESYNC_SECONDS": "60", "CPUPLAN_KUBECONFIG": "/k"}
    settings = settings_from(parsed("--namespace", "cpuplan", environment=environment))
    assert (settings.namespace, settings.resync_seconds, settings.kubeconfig) == ("cpuplan", 60, Path("/k"))


def test_without_a_name_every_process_makes_up_its_own() -> None:
    first, second = (settings_from(parsed("--namespace", "cpuplan")).identity for _ in range(2))
    assert first != second


def test_a_lease_that_others_would_take_at_every_hiccup_is_refused() -> None:
    with pytest.raises(argparse.ArgumentError, match="'1' is not a number of seconds from 3 to 86400"):
        parsed("--lease-seconds", "1")


def test_a_process_that_does_not_know_its_namespace_ends_with_one_sentence(caplog: pytest.LogCaptureFixture) -> None:
    assert run(parsed(environment={})) == 2
    assert caplog.messages == ["the namespace of the release is not known: give --namespace or set POD_NAMESPACE"]


def test_the_effective_settings_are_one_line_of_key_and_value() -> None:
    line = settings_from(parsed("--namespace", "cpuplan", "--identity", "a")).as_log()
    assert line.startswith("namespace=cpuplan configmap=cpuplan lease=cpuplan-operator identity=a ")
