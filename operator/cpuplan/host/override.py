"""Where an administrator says that GPUs are: our own TOML file, or an NCCL topology file.

Our form:

    [[gpus]]
    address = "0000:1b:00.0"
    node = 0
    cpus = "0-55,112-167"     # left out: the CPUs of that NUMA node

Source of the other: the XML that NCCL dumps (NCCL_TOPO_DUMP_FILE) and reads (NCCL_TOPO_FILE): `cpu` elements with
`numaid` and a hexadecimal `affinity` mask, in them `pci` elements with `busid` and `class`.
"""

from __future__ import annotations

import re
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as XmlTree

from ..model.cpulist import MAX_CPU, parse_cpu_list
from ..model.errors import OverrideError, OverrideMissingError
from ..model.topology import GpuPlacement, is_pci_address, normalise_address
from .sysfs import GPU_CLASS_PREFIXES

MOST_BYTES = 4 << 20
"""NCCL's file of a 16-GPU server is below 100 KB; anything larger than this is no topology file."""

MOST_TOML_BYTES = 64 << 10
"""Ours has some 80 bytes per GPU. tomllib's time grows with the square of the depth of a key, so it gets no more."""

_KEYS = {"address", "node", "cpus"}

MOST_NODE = 999_999
"""Kernels have at most 1024 NUMA nodes (CONFIG_NODES_SHIFT is at most 10)."""

_NODE = re.compile(r"[0-9]{1,6}", re.ASCII)
# Groups of 32 bits for as many CPUs as MAX_CPU; NCCL leaves out no digit but the first group's zeros.
_MASK = re.compile(rf"(?:[0-9a-f]{{1,8}},){{0,{MAX_CPU // 32}}}[0-9a-f]{{1,8}}|", re.ASCII | re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class OverrideFile:
    """The administrator's word on where GPUs are, and the file that it stands in."""

    file: Path
    placements: tuple[GpuPlacement, ...]

    @property
    def placed_by(self) -> dict[str, str]:
        """The file by the address of each GPU that it places."""
        return {placement.address: str(self.file) for placement in self.placements}


def read_override(path: Path) -> OverrideFile:
    """The file with its placements, each GPU at most once.

    Raises:
        OverrideMissingError: there is no such file.
        OverrideError: the file cannot be read, is neither form, or a placement is malformed.
    """
    try:
        content = path.read_bytes()[: MOST_BYTES + 1]
    except FileNotFoundError as error:
        raise OverrideMissingError(f"topology override {path}: {error.strerror}; give an existing file") from error
    except OSError as error:
        raise OverrideError(f"topology override {path}: {error.strerror}; give an existing file") from error
    if len(content) > MOST_BYTES:
        raise OverrideError(f"topology override {path}: larger than {MOST_BYTES} bytes; expected a topology file")
    text = content.decode("utf-8", "replace")
    placements = _from_nccl(path, text) if text.lstrip().startswith("<") else _from_toml(path, text)
    seen: set[str] = set()
    for placement in placements:
        if placement.address in seen:
            raise OverrideError(f"topology override {path}: {placement.address} is placed twice; keep one")
        seen.add(placement.address)
    return OverrideFile(path, placements)


def _from_toml(path: Path, text: str) -> tuple[GpuPlacement, ...]:
    if len(text) > MOST_TOML_BYTES:
        raise OverrideError(f"topology override {path}: larger than {MOST_TOML_BYTES} bytes, and not NCCL's XML")
    try:
        document = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise OverrideError(f"topology override {path}: {error}; expected TOML with [[gpus]], or NCCL's XML") from error
    entries = document.get("gpus")
    if not isinstance(entries, list) or set(document) != {"gpus"}:
        raise OverrideError(f"topology override {path}: expected [[gpus]] tables and nothing else")
    return tuple(_placement(path, number, entry) for number, entry in enumerate(entries, start=1))


def _placement(path: Path, number: int, entry: Any) -> GpuPlacement:
    where = f"topology override {path}: gpus entry {number}"
    if not isinstance(entry, dict) or not set(entry) <= _KEYS:
        raise OverrideError(f"{where}: expected the keys address, node and (if wanted) cpus")
    address, node, cpus = entry.get("address"), entry.get("node"), entry.get("cpus")
    if not isinstance(address, str) or not is_pci_address(address):
        raise OverrideError(f"{where}: address is {_quoted(address)}, expected a PCI address such as 0000:1b:00.0")
    if not isinstance(node, int) or isinstance(node, bool) or not 0 <= node <= MOST_NODE:
        raise OverrideError(f"{where}: node is {_quoted(node)}, expected the number of a NUMA node")
    if cpus is None:
        return GpuPlacement(normalise_address(address), node)
    try:
        return GpuPlacement(normalise_address(address), node, parse_cpu_list(cpus))
    except (ValueError, AttributeError) as error:
        raise OverrideError(f"{where}: cpus is {_quoted(cpus)}, expected a CPU list such as 0-55,112-167") from error


def _from_nccl(path: Path, text: str) -> tuple[GpuPlacement, ...]:
    if "<!DOCTYPE" in text or "<!ENTITY" in text:
        raise OverrideError(f"topology override {path}: an XML document type is not accepted; NCCL writes none")
    try:
        system = XmlTree.fromstring(text)  # noqa: S314 - entities are refused above
    except XmlTree.ParseError as error:
        raise OverrideError(f"topology override {path}: {error}; expected NCCL's topology XML") from error
    placements = []
    for cpu in system.iter("cpu"):
        node, affinity = cpu.get("numaid", ""), cpu.get("affinity", "")
        for function in cpu.iter("pci"):
            address, kind = function.get("busid", ""), function.get("class", "")
            if not kind.startswith(GPU_CLASS_PREFIXES) or not is_pci_address(address):
                continue
            if not _NODE.fullmatch(node):
                raise OverrideError(
                    f"topology override {path}: a cpu element has numaid {_quoted(node)}, expected a number"
                )
            placements.append(GpuPlacement(normalise_address(address), int(node), _mask_cpus(path, affinity)))
    if not placements:
        raise OverrideError(f"topology override {path}: no GPU in it; expected pci elements below cpu elements")
    return tuple(placements)


def _mask_cpus(path: Path, mask: str) -> frozenset[int] | None:
    """The CPUs of a mask such as `00ff,ffffffff`, groups of 32 bits, the highest first; None where it names none."""
    if not _MASK.fullmatch(mask):
        raise OverrideError(f"topology override {path}: affinity is {_quoted(mask)}, expected a hexadecimal mask")
    bits = int("".join(group.zfill(8) for group in mask.split(",")) or "0", 16)
    return frozenset(cpu for cpu in range(bits.bit_length()) if bits >> cpu & 1) or None


def _quoted(value: object) -> str:
    """The value as an error shows it; a number of more digits than Python prints is only named."""
    if isinstance(value, int) and value.bit_length() > 200:
        return "a number of more than 60 digits"
    return repr(value)[:60]
