"""`cpuplan explain`: from a file, from the pod's own volume, and from the API server."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import urllib3

from cpuplan.host.override import read_override
from cpuplan.host.root import HostRoot
from cpuplan.host.sysfs import read_topology
from cpuplan.kube.annotations import MANAGED_LABEL, MANAGED_VALUE, SETTING, annotations_of
from cpuplan.model.podplan import PodPlan
from cpuplan.model.withheld import Withheld, WithheldFor
from cpuplan.planning.override import override_topology
from tests.cli.answers import Answer
from tests.conftest import TreeOf
from tests.fakeapi import FakeApi
from tests.podvolume import PodVolume, plan_of_pod

Command = Callable[..., Answer]
SERVER = "h100-server"


def pod(plan: PodPlan | None, name: str = "llm-0", annotations: dict[str, str] | None = None) -> dict[str, Any]:
    """A pod with a plan as its agent annotates it."""
    published = {} if plan is None else annotations_of(plan)
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "namespace": "default",
            "name": name,
            "uid": name if plan is None else plan.pod_uid,
            "labels": {MANAGED_LABEL: MANAGED_VALUE},
            "annotations": {SETTING: "auto"} | published if annotations is None else annotations,
        },
        "spec": {"nodeName": "gpu-1", "containers": []},
    }


@pytest.fixture
def plan(server: HostRoot) -> PodPlan:
    return plan_of_pod(SERVER, server, gpus=(0, 4), quota=24.0)


@pytest.fixture
def pod_file(tmp_path: Path, plan: PodPlan) -> Path:
    path = tmp_path / "pod.json"
    path.write_text(json.dumps(pod(plan)))
    return path


def test_every_cpu_taken_has_a_reason_with_the_file_and_value_it_came_from(
    cpuplan: Command, pod_file: Path, server: HostRoot
) -> None:
    answer = cpuplan("explain", "-f", pod_file, "--sysfs-root", server.sys, "-o", "json")

    reasons = answer.document["containers"]["engine"]["reasons"]
    taken = {reason["text"].partition(":")[0]: reason["sources"] for reason in reasons if reason["topic"] == "taken"}
    assert taken == {
        "worker 0 takes core 0,112": [sibling_list(0, "0,112")],
        "worker 1 takes core 56,168": [sibling_list(56, "56,168")],
        "result threads take CPU 55, the first of core 55,167": [sibling_list(55, "55,167")],
    }


def sibling_list(cpu: int, value: str) -> dict[str, str]:
    return {"file": f"/sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list", "value": value}


def test_people_see_status_pools_quota_budget_and_confidence(
    cpuplan: Command, pod_file: Path, server: HostRoot
) -> None:
    answer = cpuplan("explain", "-f", pod_file, "--sysfs-root", server.sys)

    assert answer.exit_code == 0
    assert answer.facts == {
        "pod": "default/llm-0",
        "plan": "generation 1, Pinned",
        "node": answer.facts["node"],
    }
    lines = [line.split(maxsplit=1) for line in answer.output.split("Container engine\n")[1].splitlines()]
    assert {
        ("quota", "24 CPUs"),
        ("usable", "24 CPUs at once"),
        ("pinned", "0,55-56,112,168"),
        ("confidence", "consistent"),
        ("remains", "0 CPUs      the pools share 19 CPUs and are seldom all busy; then their threads take turns"),
    } <= {tuple(words) for words in lines if len(words) == 2}
    assert "  from /sys/bus/pci/devices/0000:9d:00.0/local_cpulist: 56-111,168-223" in answer.output


def test_one_output_and_one_thread_are_told_in_the_singular(cpuplan: Command, tmp_path: Path, server: HostRoot) -> None:
    path = tmp_path / "pod.json"
    path.write_text(json.dumps(pod(plan_of_pod(SERVER, server, gpus=(0,), quota=2.0))))

    lines = [" ".join(line.split()) for line in cpuplan("explain", "-f", path).output.splitlines()]

    assert "copy 1 thread 1 output at once x 1 thread" in lines


def test_on_another_machine_the_reasons_without_files_stay(cpuplan: Command, pod_file: Path) -> None:
    answer = cpuplan("explain", "-f", pod_file)

    assert answer.facts["sources"].startswith("this machine is not gpu-1: the files behind each reason are left out; ")
    assert "core 0,112 of NUMA node 0 for GPU 0000:1b:00.0" in answer.output
    assert "Reasons" not in answer.output


def test_the_tree_of_another_machine_is_said_to_be_one(
    cpuplan: Command, pod_file: Path, server: HostRoot, own_machine: TreeOf
) -> None:
    answer = cpuplan("explain", "-f", pod_file, "--sysfs-root", own_machine("gh200").sys)

    assert answer.facts["warning"].startswith(
        "the tree has no device 0000:1b:00.0, 0000:9d:00.0, which the plan is for: it seems to be another machine's"
    )
    assert "warning" not in cpuplan("explain", "-f", pod_file, "--sysfs-root", server.sys).facts


def test_cpus_that_the_plan_withholds_are_named_with_why(cpuplan: Command, volume: PodVolume, plan: PodPlan) -> None:
    ((name, engine),) = plan.containers
    withheld = tuple(Withheld(why, frozenset({number})) for number, why in enumerate(WithheldFor))
    volume.publish_plan(plan)
    assert "withheld" not in cpuplan("explain", "--plan-dir", volume.folder).output

    volume.publish_plan(replace(plan, containers=((name, replace(engine, withheld=withheld)),)))

    words = [line.split(maxsplit=1) for line in cpuplan("explain", "--plan-dir", volume.folder).output.splitlines()]
    assert ["withheld", "0 (offline), 1 (isolated), 2 (reserved)"] in words


def test_a_pod_on_standard_input_is_explained(cpuplan: Command, plan: PodPlan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO(json.dumps(pod(plan))))

    assert cpuplan("explain", "-f", "-").facts["pod"] == "default/llm-0"


def test_in_the_pod_its_own_plan_is_explained(cpuplan: Command, volume: PodVolume, plan: PodPlan) -> None:
    volume.publish_plan(plan)

    assert cpuplan("explain", "--plan-dir", volume.folder).facts["pod"] == "this pod"


def test_a_plan_file_is_explained_like_a_pod(cpuplan: Command, volume: PodVolume, plan: PodPlan) -> None:
    volume.publish_plan(plan)

    answer = cpuplan("explain", "-f", volume.folder / "plan")

    assert answer.facts["plan"] == "generation 1, Pinned"


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        pytest.param("{", "is no JSON (", id="cut off"),
        pytest.param("[" * 100_000, "is no JSON (", id="nested without end"),
        pytest.param("[]", "is neither a pod nor a plan; get a pod with kubectl get pod NAME -o json", id="list"),
        pytest.param('{"kind": "Node"}', "is neither a pod nor a plan", id="another object"),
        pytest.param(
            '{"kind": "Pod"}', "pod default/unnamed asks for no plan; set one with kubectl annotate", id="bare"
        ),
        pytest.param('{"kind": "Pod", "metadata": 3, "spec": 4}', "pod default/unnamed asks for no plan", id="odd"),
        pytest.param('{"containers": 1, "podUID": 2, "version": 1}', "not a published plan: ", id="odd plan"),
        pytest.param(json.dumps(pod(None)), "has no plan yet; does an agent run on its node (gpu-1)?", id="not yet"),
        pytest.param(
            json.dumps(pod(None, annotations={"cpuplan.dev/plan": '{"version": 9}'})),
            "version 9, this reader understands version 1",
            id="later version",
        ),
    ],
)
def test_what_cannot_be_explained_is_one_sentence(cpuplan: Command, tmp_path: Path, text: str, sentence: str) -> None:
    path = tmp_path / "pod.json"
    path.write_text(text)

    answer = cpuplan("explain", "-f", path)

    assert answer.exit_code == 1
    assert sentence in answer.sentence


def test_a_file_that_is_not_there_and_no_pod_at_all_are_sentences(cpuplan: Command, tmp_path: Path) -> None:
    assert "cannot be read; give a file with a pod or a plan" in cpuplan("explain", "-f", tmp_path / "x").sentence
    assert cpuplan("explain", "--plan-dir", tmp_path).sentence == (
        "cpuplan explain: no pod is named, and there is no plan of a pod that this runs in "
        f"({tmp_path}/plan is not there); give a pod's name and -n NAMESPACE, or a pod as JSON with -f FILE"
    )
    (tmp_path / "plan").touch()
    assert f"({tmp_path}/plan is still empty)" in cpuplan("explain", "--plan-dir", tmp_path).sentence
    assert cpuplan("explain", "llm-0", "-f", tmp_path / "x").exit_code == 2


def test_a_pod_of_the_cluster_is_explained_with_who_holds_what(
    cpuplan: Command, api: FakeApi, kubeconfig: Path, plan: PodPlan, server: HostRoot
) -> None:
    """The neighbour holds core 4,116, which this worker's GPU would have taken next but for its own."""
    name, engine = plan.containers[0]
    why = "core 8,120 of NUMA node 0 for GPU 0000:1b:00.0, GPU 1 of 4 there"
    worker = replace(engine.workers[0], cpus=frozenset({8, 120}), why=why)
    moved = replace(plan, containers=((name, replace(engine, workers=(worker, engine.workers[1]))),))
    other = replace(
        plan,
        pod_uid="another-uid",
        containers=((name, replace(engine, workers=(replace(worker, cpus=frozenset({0, 112})),), result=51)),),
    )
    api.put("/api/v1/namespaces/default/pods/llm-0", pod(moved))
    api.put("/api/v1/namespaces/default/pods/llm-1", pod(other, "llm-1"))

    answer = cpuplan("explain", "llm-0", "--kubeconfig", kubeconfig, "--sysfs-root", server.sys, "-o", "json")

    texts = [r["text"] for r in answer.document["containers"]["engine"]["reasons"] if r["topic"] == "rejected"]
    assert "worker 0: core 0,112 is held by default/llm-1 container engine" in texts


def test_a_plan_made_under_an_override_is_explained_with_it(cpuplan: Command, server: HostRoot, tmp_path: Path) -> None:
    """Without it no candidate is said to have been held: nobody held them."""
    override = tmp_path / "override.toml"
    override.write_text('[[gpus]]\naddress = "0000:1b:00.0"\nnode = 1\n')
    topology = override_topology(read_topology(server), read_override(override).placements).topology
    published = tmp_path / "pod.json"
    published.write_text(json.dumps(pod(plan_of_pod(SERVER, server, gpus=(0,), topology=topology))))
    words = ("explain", "-f", published, "--sysfs-root", server.sys)

    without = cpuplan(*words).output
    assert without.count("rejected") == 1
    assert 'made for "core 56,168 of NUMA node 1 for GPU 0000:1b:00.0, GPU 1 of 5 there"' in without
    assert 'by these files it would be "core 56,168 of NUMA node 0 for GPU 0000:1b:00.0, GPU 1 of 4 there"' in without
    assert "worker 0 takes core 56,168 of NUMA node 1" in without

    given = cpuplan(*words, "--topology-override", override).output
    assert "rejected" not in given
    assert "the topology override differs from sysfs: 0000:1b:00.0: sysfs says NUMA node 0" in given
    assert "worker 0 takes core 56,168: core 0 of NUMA node 1, counted from 0; GPU 0000:1b:00.0 is GPU 1 of 5" in given


def test_a_user_who_may_not_list_pods_still_gets_the_pods_own_plan(
    cpuplan: Command, api: FakeApi, kubeconfig: Path, plan: PodPlan
) -> None:
    api.put("/api/v1/namespaces/default/pods/llm-0", pod(plan))
    api.fail(403, times=9, path_part="/api/v1/pods")

    answer = cpuplan("explain", "llm-0", "--kubeconfig", kubeconfig)

    assert (answer.exit_code, answer.facts["pod"]) == (0, "default/llm-0")


def test_the_namespace_is_that_of_the_kubeconfig_unless_one_is_given(
    cpuplan: Command, api: FakeApi, kubeconfig: Path, plan: PodPlan
) -> None:
    document = json.loads(kubeconfig.read_text())
    document["contexts"][0]["context"]["namespace"] = "team"
    kubeconfig.write_text(json.dumps(document))
    api.put("/api/v1/namespaces/team/pods/llm-0", pod(plan))

    assert cpuplan("explain", "llm-0", "--kubeconfig", kubeconfig).exit_code == 0
    assert cpuplan("explain", "llm-0", "-n", "default", "--kubeconfig", kubeconfig).sentence == (
        "cpuplan explain: there is no pod llm-0 in namespace default; kubectl get pods -n default lists those there"
    )


def test_a_pod_that_is_not_in_the_kubeconfigs_namespace_is_asked_for_with_its_own(
    cpuplan: Command, api: FakeApi, kubeconfig: Path
) -> None:
    assert cpuplan("explain", "llm-0", "--kubeconfig", kubeconfig).sentence == (
        "cpuplan explain: there is no pod llm-0 in namespace default; give its namespace with -n"
    )


@pytest.mark.parametrize("name", ["pod/llm-0", "pods/llm-0", "po/llm-0", "Pod/llm-0"])
def test_a_pod_may_be_named_as_kubectl_prints_it(
    cpuplan: Command, api: FakeApi, kubeconfig: Path, plan: PodPlan, name: str
) -> None:
    api.put("/api/v1/namespaces/default/pods/llm-0", pod(plan))

    assert cpuplan("explain", name, "--kubeconfig", kubeconfig).facts["pod"] == "default/llm-0"


@pytest.mark.parametrize("name", ["deployment/llm", "sts/llm", "default/llm-0", "/llm-0"])
def test_what_is_no_pod_is_told_how_to_find_one(cpuplan: Command, kubeconfig: Path, name: str) -> None:
    answer = cpuplan("explain", name, "-n", "team", "--kubeconfig", kubeconfig)

    assert (answer.exit_code, answer.sentence) == (
        2,
        f"cpuplan explain: {name} is no pod, and the name of one pod is wanted (such as llm-0 or pod/llm-0); kubectl "
        "get pods -n team lists them",
    )
    assert "kubectl get pods -n NAMESPACE lists" in cpuplan("explain", name, "--kubeconfig", kubeconfig).sentence


def test_credentials_that_are_refused_are_told_whose_they_are(cpuplan: Command, api: FakeApi, kubeconfig: Path) -> None:
    api.fail(401, times=9)

    assert cpuplan("explain", "llm-0", "--kubeconfig", kubeconfig).sentence == (
        f"cpuplan explain: the API server at {api.url} refuses the credentials of the user in kubeconfig {kubeconfig} "
        "(401): they are unknown there or have expired; log in again, or give another kubeconfig"
    )


def test_a_user_who_may_not_get_the_pod_is_told_the_right_and_where_it_stands(
    cpuplan: Command, api: FakeApi, kubeconfig: Path
) -> None:
    api.fail(403, times=9)

    sentence = cpuplan("explain", "llm-0", "-n", "team", "--kubeconfig", kubeconfig).sentence
    assert sentence.startswith(f"cpuplan explain: the API server at {api.url} refuses this to the user in kubeconfig ")
    assert sentence.endswith("; it takes the right to get pods in namespace team (docs/explain.md)")


def test_without_any_kubeconfig_every_place_that_was_looked_at_is_named(
    cpuplan: Command, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("KUBECONFIG", "KUBERNETES_SERVICE_HOST", "KUBERNETES_SERVICE_PORT"):
        monkeypatch.delenv(name, raising=False)

    for words in (("explain", "llm-0"), ("audit",)):
        assert cpuplan(*words).sentence == (
            f"cpuplan {words[0]}: there is no kubeconfig: --kubeconfig is not given, KUBECONFIG names no file, "
            "~/.kube/config is not there, and this is no pod with a service account; give one"
        )


def test_an_api_server_that_is_not_there_is_told_as_that_of_the_kubeconfig(
    cpuplan: Command, kubeconfig: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("cpuplan.kube.client.default_retries", lambda: urllib3.Retry(total=0))
    document = json.loads(kubeconfig.read_text())
    document["clusters"][0]["cluster"]["server"] = "http://127.0.0.1:9"
    kubeconfig.write_text(json.dumps(document))

    sentence = cpuplan("explain", "llm-0", "--kubeconfig", kubeconfig).sentence
    assert sentence.endswith("; does the kubeconfig's current context name a cluster that runs?")


def test_the_kubeconfig_is_kubectls(
    cpuplan: Command, api: FakeApi, kubeconfig: Path, plan: PodPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    api.put("/api/v1/namespaces/default/pods/llm-0", pod(plan))
    monkeypatch.setenv("KUBECONFIG", f"/nowhere:{kubeconfig}")

    assert cpuplan("explain", "llm-0").facts["pod"] == "default/llm-0"


def test_a_missing_kubeconfig_is_one_sentence(cpuplan: Command, tmp_path: Path) -> None:
    answer = cpuplan("explain", "llm-0", "--kubeconfig", tmp_path / "none")

    assert answer.exit_code == 1
    assert answer.sentence == (f"cpuplan explain: kubeconfig {tmp_path}/none does not exist; give an existing file")


def test_an_empty_name_is_no_pod(cpuplan: Command, kubeconfig: Path) -> None:
    """The path of a pod without a name is that of all pods."""
    answer = cpuplan("explain", "", "--kubeconfig", kubeconfig)

    assert (answer.exit_code, answer.output) == (2, "")
    assert answer.sentence == "cpuplan explain: the pod's name is empty; give one, or a file with -f"


def test_standard_input_that_is_no_pod_is_called_by_its_name(cpuplan_process: Command) -> None:
    answer = cpuplan_process("explain", "-f", "-")

    assert (answer.exit_code, answer.output) == (1, "")
    assert answer.sentence.startswith("cpuplan explain: standard input is no JSON (")
