"""The self-test on real workers: in the init container, in the planned container, and what becomes of verdicts.

The workers have no GPU driver, so a device part ends *untested* but where a test brings the stand-in driver. Init
containers get it by a policy of the cluster's, as a container runtime brings a real one, and in the same way a library
for the host part that does not exist.
"""

from __future__ import annotations

import base64
import json
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.cluster import fakegpus
from tests.endtoend.conftest import Stage, until
from tests.hostflag.standin_driver import FAULTS, LIBRARY, compile_standin

SELFTEST_KEY = "cpuplan.dev/selftest"
VERDICT_KEY = "cpuplan.dev/hostflag"
ENGINE_LIBRARY = "VLLM_DSPARK_REMOTE_HOSTFLAG_LIB"
MISSING_LIBRARY = "/opt/engine/libdsv41_hostflag.so"
EVENT = "SelfTestFailed"
DRIVER = "standin-driver"
"""ConfigMap, volume and the last part of the folder of the stand-in driver."""

DRIVER_FOLDER = f"/opt/{DRIVER}"

SetVariables = Callable[[Mapping[str, str]], None]
"""Gives every init container made from now on in the test's namespace these variables."""


def make_pod(stage: Stage, selftest: str | None, command: str = "sleep infinity", **options: Any) -> None:
    """A pod with a GPU that asks for a plan and, where one is given, for this self-test."""
    asked = {} if selftest is None else {SELFTEST_KEY: selftest}
    stage.make_pod("llm", annotations={"step_thread_core": "auto", **asked}, command=command, **options)


def init_container(stage: Stage) -> dict[str, Any]:
    """The injected init container of the pod's spec."""
    (found,) = [c for c in stage.pod("llm")["spec"].get("initContainers", []) if c["name"] == "cpuplan"]
    return dict(found)


def last_end(stage: Stage) -> dict[str, Any]:
    """How the init container ended last; empty before it has."""
    statuses = stage.pod("llm")["status"].get("initContainerStatuses") or [{}]
    states = [statuses[0].get(key, {}).get("terminated") for key in ("state", "lastState")]
    return next((state for state in states if state), {})


def verdict(stage: Stage) -> dict[str, Any]:
    """The verdict in the pod's annotation, once it is there."""
    found: dict[str, Any] = json.loads(
        until(lambda: stage.annotations("llm").get(VERDICT_KEY), "the verdict is an annotation")
    )
    return found


@pytest.fixture
def set_variables(stage: Stage) -> Iterator[SetVariables]:
    """Sets variables of init containers; the policies end with the test."""
    with ExitStack() as policies:
        yield lambda variables: policies.enter_context(variables_of_init_containers(stage, variables))


@contextmanager
def variables_of_init_containers(stage: Stage, variables: Mapping[str, str]) -> Iterator[None]:
    """A policy of the cluster's, for pods of the test's namespace; where they bring the driver, it is mounted too."""
    name = f"site-variables-{uuid.uuid4().hex[:8]}"
    api = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": name}}
    entries = ", ".join(
        f"Object.spec.initContainers.env{{name: {json.dumps(key)}, value: {json.dumps(text)}}}"
        for key, text in variables.items()
    )
    mount = f'Object.spec.initContainers.volumeMounts{{name: "{DRIVER}", mountPath: "{DRIVER_FOLDER}"}}'
    has_driver = f'object.spec.?volumes.orValue([]).exists(v, v.name == "{DRIVER}")'
    policy = {
        **api,
        "kind": "MutatingAdmissionPolicy",
        "spec": {
            "failurePolicy": "Fail",
            "reinvocationPolicy": "IfNeeded",
            "matchConstraints": {
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": stage.namespace}},
                "resourceRules": [
                    {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
                ],
            },
            "mutations": [
                {
                    "patchType": "ApplyConfiguration",
                    "applyConfiguration": {
                        "expression": "Object{spec: Object.spec{initContainers: "
                        "object.spec.?initContainers.orValue([]).map(c, Object.spec.initContainers{name: c.name, "
                        f"env: [{entries}], volumeMounts: {has_driver} ? [{mount}] : []}})}}}}"
                    },
                }
            ],
        },
    }
    binding = {**api, "kind": "MutatingAdmissionPolicyBinding", "spec": {"policyName": name}}
    stage.cluster.apply(policy, binding)
    probe = ("run", "probe", "-n", stage.namespace, "--image=x", "--dry-run=server", "-o", "json", "--overrides")
    overrides = {"spec": {"initContainers": [{"name": "first", "image": "x"}]}}
    until(
        lambda: all(key in stage.cluster.kubectl(*probe, json.dumps(overrides)) for key in variables),
        "the API server has the policy",
    )
    yield
    stage.cluster.kubectl("delete", "mutatingadmissionpolicybinding,mutatingadmissionpolicy", name)


@pytest.fixture
def missing_library(set_variables: SetVariables) -> None:
    """Init containers look for the hand-off library where there is none."""
    set_variables({ENGINE_LIBRARY: MISSING_LIBRARY})


@pytest.fixture
def driver_volume(stage: Stage, tmp_path: Path) -> dict[str, Any]:
    """What a pod's spec needs to have the stand-in driver as a volume."""
    library = compile_standin(tmp_path).read_bytes()
    stage.cluster.apply(
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {"name": DRIVER, "namespace": stage.namespace},
            "binaryData": {LIBRARY: base64.b64encode(library).decode()},
        }
    )
    return {"volumes": [{"name": DRIVER, "configMap": {"name": DRIVER}}]}


def test_by_default_the_host_is_tested_and_the_verdict_published(stage: Stage) -> None:
    make_pod(stage, None)
    stage.until_running("llm")
    assert verdict(stage)["verdict"] == "pass"
    assert last_end(stage)["message"].startswith("pass ok")
    assert fakegpus.RESOURCE not in init_container(stage)["resources"].get("limits", {})


def test_skip_leaves_the_test_out(stage: Stage) -> None:
    make_pod(stage, "skip")
    stage.until_running("llm")
    found = verdict(stage)
    assert (found["verdict"], found["fault"]) == ("untested", "skipped")
    assert last_end(stage)["message"].startswith("untested skipped: the self-test was not asked for")


def test_device_lends_the_init_container_the_device_and_starts_the_pod(stage: Stage) -> None:
    make_pod(stage, "device")
    stage.until_running("llm")
    resources = init_container(stage)["resources"]
    assert (resources["limits"][fakegpus.RESOURCE], resources["requests"][fakegpus.RESOURCE]) == ("1", "1")
    assert verdict(stage)["verdict"] == "untested"
    plan = stage.plan("llm").container("engine")
    assert plan is not None
    assert len(plan.devices) == 1


def test_required_starts_a_pod_whose_test_does_not_fail(stage: Stage) -> None:
    make_pod(stage, "required")
    stage.until_running("llm")
    assert last_end(stage)["exitCode"] == 0


def test_required_starts_a_pod_whose_device_passes(
    stage: Stage, set_variables: SetVariables, driver_volume: dict[str, Any]
) -> None:
    set_variables({"LD_LIBRARY_PATH": DRIVER_FOLDER})
    make_pod(stage, "required", spec=driver_volume)
    stage.until_running("llm")
    found = verdict(stage)
    assert found["verdict"] == "pass"
    (device,) = found["deviceUUIDs"]
    assert device.startswith("GPU-")
    assert last_end(stage)["exitCode"] == 0


def test_required_stops_a_pod_whose_device_does_not_see_host_stores(
    stage: Stage, set_variables: SetVariables, driver_volume: dict[str, Any]
) -> None:
    set_variables({"LD_LIBRARY_PATH": DRIVER_FOLDER, FAULTS: "stuck"})
    make_pod(stage, "required", spec=driver_volume)
    end = until(lambda: last_end(stage), "the init container has ended")
    assert end["exitCode"] == 3
    assert end["message"].startswith("stuck device-stuck: ")
    found = verdict(stage)
    assert (found["verdict"], found["fault"]) == ("stuck", "device-stuck")
    until(lambda: EVENT in event_reasons(stage), "an Event tells the failed self-test")
    assert "waiting" in stage.pod("llm")["status"]["containerStatuses"][0]["state"]


@pytest.mark.usefixtures("missing_library")
def test_a_failed_test_that_is_only_reported_starts_the_pod_and_is_an_event(stage: Stage) -> None:
    make_pod(stage, "report")
    stage.until_running("llm")
    assert verdict(stage)["verdict"] == "fail"
    assert MISSING_LIBRARY in last_end(stage)["message"]
    until(lambda: EVENT in event_reasons(stage), "an Event tells the failed self-test")


@pytest.mark.usefixtures("missing_library")
def test_a_required_test_that_fails_stops_the_pod_and_says_why_wherever_one_looks(stage: Stage) -> None:
    make_pod(stage, "required")
    end = until(lambda: last_end(stage), "the init container has ended")
    fault = verdict(stage)["fault"]
    assert end["exitCode"] == 1
    assert end["message"][:80].startswith(f"fail {fault}: ")
    assert f"{ENGINE_LIBRARY}={MISSING_LIBRARY} does not exist" in end["message"]
    until(lambda: EVENT in event_reasons(stage), "an Event tells the failed self-test")
    pod = stage.pod("llm")
    assert pod["status"]["phase"] == "Pending"
    assert "waiting" in pod["status"]["containerStatuses"][0]["state"]


def test_the_device_part_runs_in_the_planned_container_on_request(stage: Stage) -> None:
    make_pod(stage, "skip", command="cpuplan run --selftest -- sh -c 'echo started; sleep infinity' 2>&1")
    stage.until_running("llm")
    logs = ("logs", "-n", stage.namespace, "llm", "-c", "engine")
    until(lambda: "started" in stage.cluster.kubectl(*logs), "the command runs")
    assert "self-test: untested " in stage.cluster.kubectl(*logs)


def test_a_required_test_that_keeps_the_command_from_starting_is_told_wherever_one_looks(
    stage: Stage, driver_volume: dict[str, Any]
) -> None:
    engine = {
        "name": "engine",
        "image": stage.image,
        "imagePullPolicy": "IfNotPresent",
        "command": ["cpuplan", "run", "--selftest=required", "--", "sleep", "infinity"],
        "env": [{"name": "LD_LIBRARY_PATH", "value": DRIVER_FOLDER}, {"name": FAULTS, "value": "stuck"}],
        "volumeMounts": [{"name": DRIVER, "mountPath": DRIVER_FOLDER}],
        "resources": {"limits": {fakegpus.RESOURCE: "1"}},
    }
    make_pod(stage, None, spec={"containers": [engine], "restartPolicy": "Never", **driver_volume})
    end = until(
        lambda: stage.pod("llm")["status"].get("containerStatuses", [{}])[0].get("state", {}).get("terminated"),
        "the engine's container has ended",
    )
    assert end["exitCode"] == 3
    assert end["message"].startswith("stuck device-stuck: device 0 at ")
    until(lambda: verdict(stage)["verdict"] == "stuck", "the annotation tells it")
    (device,) = verdict(stage)["deviceUUIDs"]
    assert device.startswith("GPU-")
    until(lambda: EVENT in event_reasons(stage), "an Event tells it")


def test_an_init_container_that_crashes_is_told_as_such(stage: Stage, set_variables: SetVariables) -> None:
    set_variables({"PYTHONHOME": "/nowhere"})
    make_pod(stage, "report")
    found = verdict(stage)
    assert (found["verdict"], found["fault"]) == ("fail", "init-crashed")
    until(lambda: EVENT in event_reasons(stage), "an Event tells it")


def event_reasons(stage: Stage) -> set[str]:
    """The reasons of the Events about the pod."""
    found = stage.cluster.get("events", "-n", stage.namespace, "--field-selector=involvedObject.name=llm")["items"]
    return {event["reason"] for event in found}
