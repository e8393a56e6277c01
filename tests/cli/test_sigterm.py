"""SIGTERM while a command waits, or starts a process."""

from __future__ import annotations

import signal

import pytest

from cpuplan.cli.sigterm import ended_by_sigterm, held_back


def test_sigterm_ends_the_block_with_its_exit_code_and_the_handler_is_as_before() -> None:
    before = signal.getsignal(signal.SIGTERM)
    with pytest.raises(SystemExit) as ended, ended_by_sigterm():
        signal.raise_signal(signal.SIGTERM)
    assert ended.value.code == 128 + signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


def test_what_is_started_meanwhile_is_in_its_callers_hands_before_sigterm_takes_effect() -> None:
    started = []

    def start() -> None:
        signal.raise_signal(signal.SIGTERM)
        started.append("a process")

    with pytest.raises(SystemExit) as ended, ended_by_sigterm(), held_back():
        start()
    assert (ended.value.code, started) == (128 + signal.SIGTERM, ["a process"])


def test_without_a_signal_nothing_is_held_back() -> None:
    with ended_by_sigterm():
        with held_back():
            pass
        with pytest.raises(SystemExit):
            signal.raise_signal(signal.SIGTERM)
