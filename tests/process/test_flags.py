"""Flags, their environment, and what is refused."""

import argparse

import pytest

from cpuplan.process.address import Address
from cpuplan.process.flags import Flags, seconds_from


def parsed(*flags: str, environment: dict[str, str] | None = None) -> argparse.Namespace:
    """The flags as argparse reads them."""
    parser = argparse.ArgumentParser(exit_on_error=False)
    added = Flags(parser, environment or {})
    added.add("node-name", "", "name of the node", fallback="NODE_NAME")
    added.add("wait-seconds", "5", "how long", type=seconds_from(0.5))
    added.add_process_flags(metrics_address="0.0.0.0:9465")
    return parser.parse_args(flags)


def test_without_flags_and_environment_the_defaults_count() -> None:
    settings = parsed()
    assert (settings.node_name, settings.wait_seconds, settings.kubeconfig, settings.log_level) == ("", 5, "", "info")
    assert settings.metrics_address == Address("0.0.0.0", 9465)


def test_a_flag_outranks_its_variable_which_outranks_the_fallback() -> None:
    environment = {"NODE_NAME": "of-the-pod"}
    assert parsed(environment=environment).node_name == "of-the-pod"
    environment |= {"CPUPLAN_NODE_NAME": "of-the-process"}
    assert parsed(environment=environment).node_name == "of-the-process"
    assert parsed("--node-name", "of-the-flag", environment=environment).node_name == "of-the-flag"


@pytest.mark.parametrize(
    ("flags", "environment", "sentence"),
    [
        (["--wait-seconds", "soon"], {}, "'soon' is not a number of seconds from 0.5 to 86400"),
        (["--wait-seconds", "nan"], {}, "'nan' is not a number of seconds from 0.5 to 86400"),
        (["--wait-seconds", "0.4"], {}, "'0.4' is not a number of seconds from 0.5 to 86400"),
        (["--wait-seconds", "inf"], {}, "'inf' is not a number of seconds from 0.5 to 86400"),
        ([], {"CPUPLAN_WAIT_SECONDS": "-1"}, "'-1' is not a number of seconds from 0.5 to 86400"),
        (["--log-level", "loud"], {}, "'loud' is none of debug, info, warning, error"),
        ([], {"CPUPLAN_LOG_LEVEL": "INFO"}, "'INFO' is none of debug, info, warning, error"),
        (["--metrics-address", "9465"], {}, "'9465' is not an address: expected HOST:PORT such as 0.0.0.0:9465"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_with_what_is_allowed(
    flags: list[str], environment: dict[str, str], sentence: str
) -> None:
    with pytest.raises(argparse.ArgumentError, match=sentence):
        parsed(*flags, environment=environment)


def test_help_names_the_variables_and_the_default() -> None:
    parser = argparse.ArgumentParser()
    Flags(parser, {}).add("node-name", "", "name of the node", fallback="NODE_NAME")
    Flags(parser, {}).add("size", "3", "how large")
    text = " ".join(parser.format_help().split())
    assert "name of the node (CPUPLAN_NODE_NAME or NODE_NAME; no default)" in text
    assert "how large (CPUPLAN_SIZE; default 3)" in text
