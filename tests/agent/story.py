"""A random story of one node: pods come, change and go, the kubelet and the API server fail, the agent dies.

Whatever happens is one event. After each the agent is let come to rest; tests/agent/story_rules.py judges it then.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import grpc

from cpuplan.host.devices import read_nvidia_gpus
from cpuplan.host.root import HostRoot
from cpuplan.host.sysfs import read_online
from cpuplan.kube.paths import pod_path
from cpuplan.model.cpulist import format_cpu_list
from tests.agent.node import TestNode
from tests.agent.told import (
    CONTAINER_KEY,
    CONTAINERS,
    CPU_LIMITS,
    CREATED,
    QUOTAS,
    SETTINGS,
    USER_KEYS,
    WORKERS,
    WORKERS_KEY,
    ToldPod,
    annotations_of_user,
)

MOST_PODS = 6
FAULTS = (404, 409, 403, 422, 429, 500, 503)

LONG_SECONDS = 61.0
"""More than the longest pause after a refused patch, and than masks take to settle."""

MOST_TURNS = 12
"""Turns within which a node has to come to rest: faults are few, and each is over after one pause."""


class RestlessError(AssertionError):
    """The agent goes on writing although nothing happens."""


class Story:
    """What happens on one node, by a seed.

    Args:
        folder: where the node's own copy of /proc goes, which a reboot changes.
    """

    def __init__(self, node: TestNode, seed: int, folder: Path) -> None:
        shutil.copytree(node.root.proc, folder / "proc", symlinks=True)
        node.root = HostRoot(node.root.sys, folder / "proc", node.root.cgroup)
        node.restart_agent()
        self.node = node
        self.pods: dict[str, ToldPod] = {}
        self.told: list[str] = []
        self.is_kubelet_up = self.is_driver_up = True
        self.boot_count = 0
        self.tampered = ""
        self._random = random.Random(seed)  # noqa: S311 - a story, no secret
        self._gpus = tuple(gpu.address for gpu in read_nvidia_gpus(node.root))
        self._online = sorted(read_online(node.root))
        self._anything = (*(self._create,) * 6, self._kubelet_stops_or_starts, self._kubelet_fails,
                          self._driver_goes_or_comes, self._devices_appear, self._agent_dies,
                          self._agent_dies_amid_writing, self._time_passes, self._reboot)  # fmt: skip
        self._with_a_pod = (self._remove, self._end, self._delete, self._annotate, self._annotate, self._unannotate,
                            self._choose_workers, self._choose_container, self._run, self._run, self._run, self._stop,
                            self._give_exclusive_cpus, self._tamper, self._api_refuses)  # fmt: skip

    def go_on(self) -> None:
        """Lets one thing happen, and the agent come to rest.

        Raises:
            RestlessError: it never does.
        """
        self.tampered = ""
        pods = list(self.pods.values())
        if not self.is_kubelet_up and self._random.random() < 0.5:
            what = self._kubelet_stops_or_starts()
        elif not self.is_driver_up and self._random.random() < 0.3:
            what = self._driver_goes_or_comes()
        elif not pods or self._random.random() < 0.5:
            what = self._random.choice(self._anything)()
        else:
            what = self._happen_to(self._random.choice(pods))
        self.told.append(what)
        self._come_to_rest()

    def _happen_to(self, pod: ToldPod) -> str:
        """A pod that leaves or has ended only ends or goes."""
        events: tuple[Callable[[ToldPod], str], ...] = self._with_a_pod
        if pod.is_leaving or pod.is_ended:
            events = (self._remove, self._remove, self._end, self._unannotate)
        return f"{pod.name}: {self._random.choice(events)(pod)}"

    def _come_to_rest(self) -> None:
        quiet_count = 0
        for _ in range(MOST_TURNS):
            quiet_count = 0 if self.node.turn() else quiet_count + 1
            self.node.clock.advance(LONG_SECONDS)
            if quiet_count == 2:
                return
        raise RestlessError([request.body for request in self.node.turn()])

    # What happens to the node.

    def _create(self) -> str:
        free_names = sorted({f"llm-{number}" for number in range(MOST_PODS)} - self.pods.keys())
        if not free_names:
            return self._time_passes()
        # Names come back, as those of a StatefulSet do; UIDs never.
        name = self._random.choice(free_names)
        containers = self._random.sample(("engine", "helper", "third"), self._random.choice((1, 1, 1, 2, 3)))
        gpus = {container: self._some_gpus() for container in containers}
        pod = ToldPod(name, "", gpus, self._random.choice((*SETTINGS, None)))
        pod.workers, pod.container = self._random.choice(WORKERS), self._random.choice(CONTAINERS)
        self.node.add_pod(
            name,
            setting=pod.setting,
            gpus=gpus,
            created=self._random.choice(CREATED),
            cpu_limit=self._random.choice(CPU_LIMITS),
            annotations=annotations_of_user(pod),
        )
        content = self.node.api.object(pod_path("default", name))
        assert content is not None
        pod.uid = content["metadata"]["uid"]
        pod.show_devices(self.node, is_shown=self._random.random() < 0.7)
        self.pods[name] = pod
        return f"created {pod}"

    def _some_gpus(self) -> list[str]:
        """Mostly free ones; now and then ones that others use too."""
        used = {address for pod in self.pods.values() for addresses in pod.gpus.values() for address in addresses}
        choice = [gpu for gpu in self._gpus if gpu not in used or self._random.random() < 0.3]
        return self._random.sample(choice, min(self._random.choice((0, 1, 1, 1, 1, 2)), len(choice)))

    def _some_cpus(self) -> frozenset[int]:
        whole = len(self._online)
        size = self._random.choice((1, 2, 3, 5, 8, 16, whole // 2, whole // 2, whole, whole, whole))
        if self._random.random() < 0.7:
            start = self._random.randrange(len(self._online))
            return frozenset((self._online + self._online)[start : start + size])
        return frozenset(self._random.sample(self._online, min(size, len(self._online))))

    def _kubelet_stops_or_starts(self) -> str:
        (self.node.kubelet.stop if self.is_kubelet_up else self.node.kubelet.start)()
        self.is_kubelet_up = not self.is_kubelet_up
        return f"the kubelet {'starts' if self.is_kubelet_up else 'stops'}"

    def _kubelet_fails(self) -> str:
        self.node.kubelet.fail(self._random.choice((grpc.StatusCode.INTERNAL, grpc.StatusCode.UNAVAILABLE)))
        self.node.turn()
        self.node.clock.advance(self._random.choice((0.1, LONG_SECONDS)))
        self.node.turn()
        self.node.kubelet.recover()
        return "the kubelet fails twice"

    def _driver_goes_or_comes(self) -> str:
        """While a driver is updated nothing says where its devices are."""
        here, away = (self.node.root.proc / name for name in ("driver", "no-driver"))
        here.rename(away) if self.is_driver_up else away.rename(here)
        self.is_driver_up = not self.is_driver_up
        return f"the driver {'comes' if self.is_driver_up else 'goes'}"

    def _devices_appear(self) -> str:
        for pod in self.pods.values():
            if pod.is_hidden and not pod.is_ended:
                pod.show_devices(self.node, is_shown=True)
        return "all devices are shown"

    def _agent_dies(self) -> str:
        most = self._random.choice((None, None, None, 10))
        self.node.restart_agent(most_pinned_per_pod=most)
        return f"the agent is killed, and comes back with most_pinned_per_pod {most}"

    def _agent_dies_amid_writing(self) -> str:
        self.node.api.fail(503, times=2, method="PATCH")
        self.node.turn()
        self.node.api.recover()
        self.node.restart_agent()
        return "the agent is killed after some of its patches"

    def _time_passes(self) -> str:
        self.node.clock.advance(self._random.choice((1.0, 35.0, 3600.0)))
        return "time passes"

    def _reboot(self) -> str:
        """The pods are the same afterwards; their cgroups, and what stands on them, are of the boot before."""
        self.boot_count += 1
        boot_id = UUID(int=self._random.getrandbits(128))
        (self.node.root.proc / "sys/kernel/random/boot_id").write_text(f"{boot_id}\n")
        shutil.rmtree(self.node.root.cgroup / "kubepods", ignore_errors=True)
        for pod in self.pods.values():
            pod.cpusets.clear()
            for container in pod.is_running:
                self._report_stopped(pod, container)
        self.node.restart_agent()
        return "the node is booted"

    # What happens to a pod.

    def _remove(self, pod: ToldPod) -> str:
        del self.pods[pod.name]
        self.node.remove_pod(pod.name)
        return "removed"

    def _end(self, pod: ToldPod) -> str:
        pod.is_ended = True
        self.node.end_pod(pod.name, self._random.choice(("Succeeded", "Failed")))
        if self._random.random() < 0.5:
            self.node.kubelet.remove_pod("default", pod.name)
        return "ended"

    def _delete(self, pod: ToldPod) -> str:
        pod.is_leaving = True
        self.node.patch(pod.name, {"metadata": {"deletionTimestamp": "2026-01-04T00:00:00Z"}})
        return "deleted, with a grace period"

    def _annotate(self, pod: ToldPod) -> str:
        pod.setting = self._random.choice(SETTINGS)
        self.node.annotate(pod.name, step_thread_core=pod.setting)
        return f"step_thread_core={pod.setting!r}"

    def _unannotate(self, pod: ToldPod) -> str:
        pod.setting = None
        self.node.annotate(pod.name, step_thread_core=None)
        return "step_thread_core-"

    def _choose_workers(self, pod: ToldPod) -> str:
        pod.workers = self._random.choice(WORKERS)
        self.node.annotate(pod.name, **{WORKERS_KEY: pod.workers})
        return f"workers={pod.workers!r}"

    def _choose_container(self, pod: ToldPod) -> str:
        pod.container = self._random.choice(CONTAINERS)
        self.node.annotate(pod.name, **{CONTAINER_KEY: pod.container})
        return f"container={pod.container!r}"

    def _run(self, pod: ToldPod) -> str:
        """A container runs, or its cgroup is rewritten under it."""
        container, cpus = self._random.choice(list(pod.gpus)), self._some_cpus()
        quota = self._random.choice(QUOTAS)
        pod.cpusets[container], pod.quotas[container], pod.is_running[container] = cpus, quota, True
        self.node.run_container(pod.name, container, cpuset=format_cpu_list(cpus), quota=quota)
        return f"{container} runs on {format_cpu_list(cpus)} with {quota!r}"

    def _stop(self, pod: ToldPod) -> str:
        """A container has ended and will be started again."""
        running = [container for container, is_running in pod.is_running.items() if is_running]
        if not running:
            return self._run(pod)
        container = self._random.choice(running)
        self._report_stopped(pod, container)
        return f"{container} is started again"

    def _report_stopped(self, pod: ToldPod, container: str) -> None:
        pod.is_running[container] = False
        content = self.node.api.object(pod_path("default", pod.name))
        assert content is not None
        statuses = content["status"]["containerStatuses"]
        for status in statuses:
            if status["name"] == container:
                status |= {"state": {"waiting": {}}, "restartCount": 1}
        self.node.patch(pod.name, {"status": {"containerStatuses": statuses}})

    def _give_exclusive_cpus(self, pod: ToldPod) -> str:
        container = self._random.choice(list(pod.gpus))
        cpus = self._some_cpus() if self._random.random() < 0.6 else frozenset[int]()
        pod.exclusive[container] = cpus
        self.node.kubelet.set_cpu_ids("default", pod.name, container, list(cpus))
        return f"exclusive CPUs of {container}: {format_cpu_list(cpus) or 'none'}"

    def _tamper(self, pod: ToldPod) -> str:
        """Somebody removes annotations of ours, as anyone may, or the label."""
        ours = [key for key in self.node.annotations(pod.name) if key not in USER_KEYS]
        removed = self._random.sample(ours, self._random.randint(0, len(ours)))
        self.node.annotate(pod.name, **dict.fromkeys(removed))
        self.node.patch(pod.name, {"metadata": {"labels": self._random.choice(({}, {"cpuplan.dev/managed": None}))}})
        self.tampered = pod.name
        return f"somebody removes {removed}"

    def _api_refuses(self, pod: ToldPod) -> str:
        code, times = self._random.choice(FAULTS), self._random.randint(1, 3)
        self.node.api.fail(code, times=times, method="PATCH")
        return f"{self._annotate(pod)}, and {times} patches are answered with {code}"
