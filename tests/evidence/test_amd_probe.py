"""What the kernel's files say of AMD's GPUs, read from files of the form that it gives them.

The tree has the names of the kernel's documentation (Documentation/gpu/amdgpu) and of the driver
for computing (drivers/gpu/drm/amd/amdkfd: kfd_topology.c, kfd_process.c); numbers, places and
processes are made up. No GPU of AMD's was there to compare with.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from hangbisect.base.rank_facts import Gpu
from hangbisect.evidence import machine

ENOUGH, SHORT = 60.0, 10.0  # seconds: more than the probe takes, and where it is to run out
GIB = 1 << 30
LOCATIONS = {4: 0x0300, 5: 0x2B00}  # by node of the topology: bus and device


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """The files of a machine with a processor and two GPUs, of which processes 41 and 42 use one
    each.
    """
    nodes = tmp_path / "sys/class/kfd/kfd/topology/nodes"
    write(nodes / "0/gpu_id", "0\n")
    write(nodes / "0/properties", "cpu_cores_count 96\nsimd_count 0\n")
    for node, location in LOCATIONS.items():
        write(nodes / f"{node}/gpu_id", f"{node}000\n")
        properties = (
            f"simd_count 1216\nlocation_id {location}\ndomain 0\ngfx_target_version 90402\n"
        )
        write(nodes / f"{node}/properties", properties)
        place = tmp_path / f"sys/bus/pci/devices/{bus(node)}"
        write(place / "product_name", "AMD Instinct MI300X OAM\n")
        write(place / "unique_id", f"{node}d6e7a3b6ae5e4ac\n")
        write(place / "gpu_busy_percent", "100\n")
        write(place / "mem_info_vram_used", f"{150 * GIB}\n")
        write(place / "mem_info_vram_total", f"{192 * GIB}\n")
        write(place / "current_link_width", "16\n")
        write(place / "max_link_width", "16\n")
        write(place / "ras/umc_err_count", "ue: 0\nce: 7\n")
        write(place / "hwmon/hwmon3/power1_average", "142000000\n")
        write(place / "hwmon/hwmon3/power1_cap", "750000000\n")
        (place / "config").write_bytes(b"\x02\x10\xa1\x74" + bytes(60))
        used = tmp_path / f"sys/class/kfd/kfd/proc/{37 + node}"
        for other in LOCATIONS:
            write(used / f"vram_{other}000", f"{GIB if other == node else 0}\n")
    write(tmp_path / "sys/module/amdgpu/version", "6.8.5\n")
    return tmp_path


def bus(node: int) -> str:
    return f"0000:{LOCATIONS[node] >> 8:02x}:00.0"


def ask(root: Path, limit: float = ENOUGH) -> tuple[tuple[Gpu, ...], tuple[str, ...]]:
    return asyncio.run(machine.read_amd_gpus(limit, str(root)))


def test_what_the_kernel_says_of_each_gpu_is_known(root: Path) -> None:
    (first, second), missing = ask(root)
    assert missing == ()
    assert (first.index, first.bus, second.bus) == (0, bus(4), bus(5))
    assert (first.name, first.driver) == ("AMD Instinct MI300X OAM", "6.8.5")
    assert (first.busy, first.power, first.power_limit) == (1.0, 142.0, 750.0)
    assert first.moments == ((1.0, 142.0), (1.0, 142.0))
    assert (first.memory_used, first.memory_total) == (150 * GIB, 192 * GIB)
    assert (first.pids or first.host_pids, second.pids or second.host_pids) == ((41,), (42,))
    assert (first.pcie_width, first.pcie_width_most, first.memory_errors) == (16, 16, 0)
    assert (first.state, first.said) == ("", "")


def test_a_gpu_without_a_name_has_that_of_its_kind(root: Path) -> None:
    write(root / f"sys/bus/pci/devices/{bus(4)}/product_name", "\n")
    assert ask(root)[0][0].name == "AMD GPU (gfx942)"


def test_errors_of_its_memory_are_counted(root: Path) -> None:
    write(root / f"sys/bus/pci/devices/{bus(5)}/ras/umc_err_count", "ue: 3\nce: 0\n")
    assert [gpu.memory_errors for gpu in ask(root)[0]] == [0, 3]


def test_a_gpu_that_is_off_the_bus_is_lost_and_the_other_one_is_known(root: Path) -> None:
    (root / f"sys/bus/pci/devices/{bus(4)}/config").write_bytes(b"\xff" * 64)
    (first, second), missing = ask(root)
    assert (first.state, second.state, second.busy) == ("lost", "", 1.0)
    assert missing == (f"GPU 0 ({bus(4)}): its place on the bus answers nothing.",)


def test_a_gpu_that_does_not_answer_does_not_silence_the_other_one(root: Path) -> None:
    """Its driver waits for the GPU's own processor, and who reads the file waits with it."""
    silent = root / f"sys/bus/pci/devices/{bus(5)}/gpu_busy_percent"
    silent.unlink()
    os.mkfifo(silent)
    (first, second), missing = ask(root, SHORT)
    assert (first.state, first.busy) == ("", 1.0)
    assert (second.state, second.name) == ("silent", "AMD Instinct MI300X OAM")
    assert missing == (f"GPU 1 ({bus(5)}): the driver gave no answer (asked for busy).",)


def test_what_a_kernel_does_not_tell_is_not_known(root: Path) -> None:
    place = root / f"sys/bus/pci/devices/{bus(4)}"
    for name in ("gpu_busy_percent", "hwmon/hwmon3/power1_average", "ras/umc_err_count"):
        (place / name).unlink()
    write(place / "mem_info_vram_total", "what\n")
    first = ask(root)[0][0]
    assert (first.busy, first.power, first.memory_errors, first.memory_used) == (None,) * 4
    assert (first.moments, first.state) == ((), "")


def test_without_gpus_of_amds_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_DRIVER_FILES", ())
    monkeypatch.setattr(machine, "_AMD_DRIVER", "/nowhere")
    monkeypatch.setattr(machine, "AMD_PROBE", Path("/nowhere"))
    found, missing = asyncio.run(machine.read_gpus(1.0))
    assert found == ()
    assert len(missing) == 1


@pytest.mark.parametrize(
    ("links", "status"),
    [
        ({"4/io_links/1": "11 5", "5/io_links/1": "11 4"}, 0),  # XGMI
        ({"4/p2p_links/0": "2 5", "5/p2p_links/0": "2 4"}, 0),  # over PCIe
        ({"4/io_links/1": "2 0", "5/io_links/1": "2 0"}, 100),  # to the processor alone
        ({"4/io_links/1": "11 5"}, 100),  # one way
    ],
)
def test_which_gpus_reach_each_other(root: Path, links: dict[str, str], status: int) -> None:
    for place, link in links.items():
        kind, to = link.split()
        path = root / f"sys/class/kfd/kfd/topology/nodes/{place}/properties"
        write(
            path, f"type {kind}\nversion_major 0\nnode_from {place[0]}\nnode_to {to}\nweight 15\n"
        )
    command = [sys.executable, "-P", str(machine.AMD_PROBE), "--peers", "--root", str(root)]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert json.loads(said) == {"pairs": [[0, 1, status]]}
