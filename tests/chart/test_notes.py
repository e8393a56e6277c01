"""What Helm prints after an installation."""

from __future__ import annotations

import subprocess

import pytest

from tests.apiserver import find_program
from tests.chart.rendering import CHART


def notes(*settings: str) -> str:
    """The notes as `helm install` would print them, asking no cluster."""
    sets = [argument for setting in settings for argument in ("--set", setting)]
    helm = [str(find_program("helm")), "install", "cpuplan", str(CHART)]
    command = [*helm, "--namespace", "gpu", "--dry-run=client", *sets]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return done.stdout.partition("NOTES:\n")[2]


def test_notes_say_how_to_see_that_it_works() -> None:
    text = notes("policies.mutating=enabled")
    assert "kubectl -n gpu rollout status daemonset/cpuplan-agent" in text
    assert "kubectl annotate pod POD step_thread_core=auto" in text
    assert "kubectl -n gpu get configmap cpuplan -o yaml" in text


def test_notes_name_the_pod_security_level_that_the_agent_needs() -> None:
    assert "kubectl label namespace gpu pod-security.kubernetes.io/enforce=privileged" in notes()


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        (("policies.mutating=auto",), "does not offer MutatingAdmissionPolicy v1 (Kubernetes 1.36)"),
        (("policies.mutating=disabled",), "as policies.mutating=disabled says"),
        (("policies.mutating=enabled", "injection.enabled=false"), "as injection.enabled=false says"),
        (
            ("policies.mutating=enabled", "injection.excludedNamespaces={a,b}"),
            "which waits up to 15 s for it; never in kube-system, gpu, a, b.",
        ),
    ],
    ids=["an older API server", "disabled", "no injection", "injection"],
)
def test_notes_say_what_new_pods_get(settings: tuple[str, ...], words: str) -> None:
    assert words in notes(*settings)


@pytest.mark.parametrize("mutating", ["auto", "disabled"])
def test_notes_say_what_is_missing_without_mutating_policies(mutating: str) -> None:
    text = notes(f"policies.mutating={mutating}")
    assert "new pods get neither the plan volume nor the self-test init container" in text
    assert "the label cpuplan.dev/managed is set by the agents only" in text
    assert "a manifest that carries annotations of ours is refused instead of cleaned" in text
