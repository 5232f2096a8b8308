"""Print what the kernel's files say of AMD's GPUs, as JSON, in the form of `nvml_probe.py`.

With --limit SECONDS: when it comes to an end, whoever has answered until then. With --root FOLDER:
where the kernel's files are. With --peers: which pairs of GPUs have direct access to each other, by
XGMI or over PCIe (io_links and p2p_links of the topology; CRAT_IOLINK_TYPE_XGMI, kfd_crat.h).

A program of its own, run by `machine.py` with a time limit, and for each GPU a child of its own: to
read some of these files the driver asks the GPU's own processor, which may not answer any more. No
library is needed: the names are those of the kernel's documentation (Documentation/gpu/amdgpu:
driver-misc, thermal, ras) and of amdkfd (kfd_topology.c, kfd_process.c). amdsmi reads the same
files.
"""

from __future__ import annotations

import argparse
import functools
import glob
import importlib.util
import json
import os
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

_TOPOLOGY = "sys/class/kfd/kfd/topology/nodes"
_USERS = "sys/class/kfd/kfd/proc"
_XGMI = "11"  # CRAT_IOLINK_TYPE_XGMI
_APART = 100  # no status of NVML's
_NOTHING_THERE = b"\xff\xff"  # what the bus reads where nothing answers (PCI_POSSIBLE_ERROR)


def _load_nvml_probe() -> Any:
    """Return the program that asks NVML: its children answer questions within a time. It is found
    by its place, for the folder of our own code is no place to import from here.
    """
    path = os.path.join(os.path.dirname(os.path.abspath(__file__)), "nvml_probe.py")
    spec = importlib.util.spec_from_file_location("nvml_probe", path)
    if spec is None or spec.loader is None:
        raise ImportError(path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


nvml_probe = _load_nvml_probe()


def main(argv: list[str]) -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--limit", type=float, default=5.0)
    parser.add_argument("--root", default="/")
    parser.add_argument("--peers", action="store_true")
    args = parser.parse_args(argv)
    gpus = list_gpus(args.root)
    if args.peers:
        print(json.dumps({"pairs": list_pairs(gpus)}))
        return 0
    until = time.monotonic() + args.limit
    answers = nvml_probe.answer_apart([functools.partial(tell_gpu, one) for one in gpus], until)
    found = []
    for index, (gpu, (answer, is_whole)) in enumerate(zip(gpus, answers, strict=True)):
        found.append({"index": index, "bus": gpu.bus, **answer})
        if not is_whole:
            found[-1]["state"] = "silent"
    print(json.dumps(found))
    return 0


def list_gpus(root: str) -> list[AmdGpu]:
    """Return the GPUs that can compute, in the order in which HIP counts them."""
    found = []
    for name in sorted(
        _list_folder(os.path.join(root, _TOPOLOGY)), key=lambda one: (len(one), one)
    ):
        node = os.path.join(root, _TOPOLOGY, name)
        gpu_id = _read_file(os.path.join(node, "gpu_id"))
        properties = _read_properties(os.path.join(node, "properties"))
        if gpu_id not in (None, "", "0"):
            found.append(AmdGpu(root, str(gpu_id), properties, node))
    return found


def list_pairs(gpus: list[AmdGpu]) -> list[list[int]]:
    """Return each pair of GPUs, by their numbers, and whether they reach each other: 0 if so."""
    linked = [gpu.linked_nodes() for gpu in gpus]
    return [
        [a, b, 0 if gpus[b].node in linked[a] and gpus[a].node in linked[b] else _APART]
        for a in range(len(gpus))
        for b in range(a + 1, len(gpus))
    ]


def _read_properties(path: str) -> dict[str, str]:
    lines = (_read_file(path) or "").splitlines()
    return dict(line.split(None, 1) for line in lines if " " in line)


class AmdGpu:
    """One GPU, and the files that tell of it."""

    def __init__(self, root: str, gpu_id: str, properties: dict[str, str], folder: str) -> None:
        """`properties` are those of its node in the topology, which has this folder."""
        self.node, self._folder = os.path.basename(folder), folder
        location, domain = (int(properties.get(key) or 0) for key in ("location_id", "domain"))
        bus, device = location >> 8, location >> 3 & 31  # PCI_DEVID
        self.bus = f"{domain:04x}:{bus:02x}:{device:02x}.{location & 7}"
        self._root, self._gpu_id, self._properties = root, gpu_id, properties
        self._place = os.path.join(root, "sys/bus/pci/devices", self.bus)

    def linked_nodes(self) -> set[str]:
        """Return the nodes of the topology that it reaches by itself."""
        found = set()
        for kind in ("io_links", "p2p_links"):
            folder = os.path.join(self._folder, kind)
            for name in _list_folder(folder):
                link = _read_properties(os.path.join(folder, name, "properties"))
                if kind == "p2p_links" or link.get("type", "").strip() == _XGMI:
                    found.add(link.get("node_to", "").strip())
        return found

    def is_there(self) -> bool:
        """Return whether its place on the bus answers."""
        with open(os.path.join(self._place, "config"), "rb") as file:
            return file.read(2) != _NOTHING_THERE

    def name(self) -> str:
        """Return "AMD Instinct MI300X OAM", or the kind of its processors."""
        version = int(self._properties.get("gfx_target_version") or 0)  # 90402: gfx942
        kind = f"gfx{version // 10000}{version // 100 % 100:x}{version % 100:x}"
        return self._text("product_name") or f"AMD GPU ({kind})"

    def uuid(self) -> str | None:
        """Return its number, as HIP_VISIBLE_DEVICES may name it: "GPU-4d6e7a3b6ae5e4ac"."""
        number = self._text("unique_id")
        return f"GPU-{number}" if number else None

    def driver(self) -> str | None:
        """Return the driver's version, where it is not the kernel's own."""
        return _read_file(os.path.join(self._root, "sys/module/amdgpu/version"))

    def memory(self) -> list[int] | None:
        """Return used and total bytes."""
        sizes = [self._number(f"mem_info_vram_{which}") for which in ("used", "total")]
        known = [size for size in sizes if size is not None]
        return known if len(known) == 2 else None

    def pids(self) -> dict[str, list[int]]:
        """Return the processes that have memory on it, as we number them, or as the host does."""
        users = os.path.join(self._root, _USERS)
        found = [
            int(pid)
            for pid in _list_folder(users)
            if pid.isdecimal()
            and int(_read_file(os.path.join(users, pid, f"vram_{self._gpu_id}")) or 0) > 0
        ]
        return {"here" if nvml_probe.has_numbers_of_host() else "host": sorted(found)}

    def memory_errors(self) -> int | None:
        """Return how many errors of its memory were not corrected since its driver was loaded."""
        words = (self._text("ras/umc_err_count") or "").split()
        return int(words[1]) if words[:1] == ["ue:"] and words[1].isdecimal() else None

    def pcie_width(self) -> list[int] | None:
        """Return how many lanes of PCIe it uses, and how many it can use."""
        widths = [self._number(f"{which}_link_width") for which in ("current", "max")]
        known = [width for width in widths if width is not None]
        return known if len(known) == 2 else None

    def busy(self) -> int | None:
        """Return of a hundred parts of the last moment those in which it computed."""
        return self._number("gpu_busy_percent")

    def power(self) -> int | None:
        """Return milliwatts."""
        return self._milliwatts("power1_average") or self._milliwatts("power1_input")

    def power_limit(self) -> int | None:
        """Return milliwatts."""
        return self._milliwatts("power1_cap")

    def moments(self) -> list[list[int]]:
        """Return (percent of the time, milliwatts) at some later moments."""
        found = []
        for _ in range(nvml_probe.MOMENTS):
            time.sleep(nvml_probe.PAUSE)
            busy, power = self.busy(), self.power()
            if busy is not None and power is not None:
                found.append([busy, power])
        return found

    def _milliwatts(self, name: str) -> int | None:
        for path in glob.glob(os.path.join(glob.escape(self._place), "hwmon", "hwmon*", name)):
            text = _read_file(path) or ""
            return int(text) // 1000 if text.isdecimal() else None
        return None

    def _number(self, name: str) -> int | None:
        text = self._text(name) or ""
        return int(text) if text.isdecimal() else None

    def _text(self, name: str) -> str | None:
        return _read_file(os.path.join(self._place, name))


# First what the driver knows by itself, then what it asks the GPU for.
_QUESTIONS: dict[str, Callable[[AmdGpu], object]] = {
    "name": AmdGpu.name,
    "uuid": AmdGpu.uuid,
    "driver": AmdGpu.driver,
    "memory": AmdGpu.memory,
    "pids": AmdGpu.pids,
    "memory_errors": AmdGpu.memory_errors,
    "pcie_width": AmdGpu.pcie_width,
    "busy": AmdGpu.busy,
    "power": AmdGpu.power,
    "power_limit": AmdGpu.power_limit,
    "moments": AmdGpu.moments,
}


def tell_gpu(gpu: AmdGpu) -> Iterator[dict[str, object]]:
    """Yield what is known of a GPU, question by question."""
    yield {"asked": "its place on the bus"}
    try:
        if not gpu.is_there():
            yield {"state": "lost", "says": "its place on the bus answers nothing"}
    except OSError as error:
        yield {"state": "lost", "says": f"its place on the bus cannot be read ({error.strerror})"}
    for name, question in _QUESTIONS.items():
        yield {"asked": name}
        try:
            told = question(gpu)
        except (OSError, ValueError):  # not every kernel tells everything
            continue
        if told is not None:
            yield {name: told}
    yield {"asked": ""}


def _read_file(path: str) -> str | None:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 16).strip()
    except OSError:
        return None


def _list_folder(folder: str) -> list[str]:
    try:
        return os.listdir(folder)
    except OSError:
        return []


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
