"""The node's files, claims and cgroups as the agent reads them; remembers what rarely changes."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable

from ..host.devices import AddressOfUuid, PlacedDevice, UnplacedDevice, place_device
from ..host.identity import read_boot_id
from ..host.override import OverrideFile
from ..host.podcgroups import ContainerCgroup, PodCgroups
from ..host.root import HostRoot, read_text
from ..host.sysfs import read_cpu_list, read_online, read_topology
from ..host.threads import read_allowed_cpus
from ..kube.pods import Container, Pod
from ..model.topology import HostTopology
from ..planning.override import Difference, override_topology
from .claims import ClaimedAddress, DevicePlaces, NotAllocated
from .masks import NO_CPUS, NodeCpus

Claimed = Callable[[Pod, Container, DevicePlaces], tuple[ClaimedAddress, ...] | NotAllocated]

CLAIMED_GPU_CLASSES = ("0x03", "0x12")
"""PCI base classes of display controllers and processing accelerators. Co-processors (0b40) are left out: claims are
made for those that encrypt (Intel QAT), and no GPU of today is one."""

_log = logging.getLogger(__name__)


class NodeFacts:
    """Facts of one node.

    Topology and places of devices are read once and again after `refresh`; the online CPUs, the agent's own
    allowed CPUs and cgroups every time. `differences` is where the override differed from sysfs when that was read
    last, `placed_by` the override's file by the address of each GPU that it places.

    Args:
        reserved: CPUs that the administrator keeps from plans.
        override: where the administrator says that GPUs are; outranks sysfs. None: nobody said anything.
        nvml: what NVML says about a UUID, where it may be asked.
        claimed: the devices a container got through claims; it asks these facts where and what a device is.
    """

    def __init__(
        self,
        root: HostRoot,
        *,
        claimed: Claimed,
        reserved: frozenset[int] = NO_CPUS,
        override: OverrideFile | None = None,
        nvml: AddressOfUuid | None = None,
    ) -> None:
        self._root = root
        self._claimed = claimed
        self._reserved = reserved
        self._override = override
        self.differences: tuple[Difference, ...] = ()
        self.placed_by = {} if override is None else override.placed_by
        self._nvml = nvml
        self._cgroups = PodCgroups(root)
        self._places: dict[str, PlacedDevice] = {}
        self._topologies: dict[frozenset[str], HostTopology] = {}
        self.boot_id = read_boot_id(root)

    def refresh(self) -> None:
        """Forgets what was read: the next questions read anew."""
        self._places.clear()
        self._topologies.clear()

    def cpus(self) -> NodeCpus:
        """The node's CPUs now."""
        online = read_online(self._root)
        return NodeCpus(
            online=online,
            shared_pool=read_allowed_cpus("self", self._root) or online,
            isolated=read_cpu_list(self._root.cpu_folder / "isolated") or NO_CPUS,
            reserved=self._reserved,
        )

    def topology(self, addresses: Iterable[str]) -> HostTopology:
        """The topology, with the functions of the kinds of these PCI addresses.

        Raises:
            HostReadError: there is no sysfs any more.
        """
        wanted = frozenset(addresses)
        found = self._topologies.get(wanted)
        if found is None or found.online != read_online(self._root):
            known = wanted | self.placed_by.keys()
            found = self._topologies[wanted] = self._overridden(read_topology(self._root, sorted(known)))
        return found

    def _overridden(self, topology: HostTopology) -> HostTopology:
        """The topology as the administrator corrects it; what that changes is logged once."""
        if self._override is None:
            return topology
        result = override_topology(topology, self._override.placements)
        if result.differences != self.differences:
            self.differences = result.differences
            for difference in result.differences:
                _log.warning(
                    "the topology override differs from sysfs file=%s difference=%r",
                    self._override.file,
                    difference.sentence,
                )
        return result.topology

    def place(self, device_id: str) -> PlacedDevice | UnplacedDevice:
        """Where a device is."""
        found = self._places.get(device_id)
        if found is not None:
            return found
        place = place_device(self._root, device_id, nvml=self._nvml)
        if isinstance(place, PlacedDevice):
            self._places[device_id] = place
        return place

    def is_gpu(self, address: str) -> bool:
        """Whether the PCI function at this address is of a class that a claimed GPU has."""
        device_class = read_text(self._root.pci_folder / address / "class")
        return device_class is not None and device_class.startswith(CLAIMED_GPU_CLASSES)

    def claimed(self, pod: Pod, container: Container) -> tuple[ClaimedAddress, ...] | NotAllocated:
        """The devices that a container got through resource claims."""
        return self._claimed(pod, container, self)

    def cgroup(self, pod: Pod, container: Container) -> ContainerCgroup | None:
        """The cgroup of a running container, None where it is not found."""
        return None if container.container_id is None else self._cgroups.read(pod.cgroup_uid, container.container_id)
