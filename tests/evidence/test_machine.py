"""What a machine and a control group offer, from made-up files; NVML, from made-up answers."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hangbisect.base import cgroups
from hangbisect.base.rank_facts import Gpu
from hangbisect.evidence import kernel, machine
from hypothesis import given
from hypothesis import strategies as st

GIB = 1 << 30


def files(root: Path, **texts: str) -> None:
    """Write files, `a__b_c` as a/b.c."""
    for name, text in texts.items():
        *folders, file = name.split("__")
        folder = root.joinpath(*folders)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / file.replace("_", ".", 1)).write_text(text)


def test_the_second_version_with_a_tighter_limit_above(tmp_path: Path) -> None:
    files(tmp_path, job__cpu_max="150000 100000\n", job__memory_max=f"{8 * GIB}\n")
    files(tmp_path, job__memory_current=f"{3 * GIB}\n", job__memory_stat=f"inactive_file {GIB}\n")
    files(tmp_path, job__step__cpu_max="max 100000\n", job__step__memory_max="max\n")
    found = cgroups.limits("0::/job/step\n", tmp_path)
    assert found == cgroups.Limits(1.5, 8 * GIB, 6 * GIB)


def test_the_first_version_whose_path_is_the_one_outside_of_the_container(tmp_path: Path) -> None:
    memory, cpu = tmp_path / "memory", tmp_path / "cpu,cpuacct"
    memory.mkdir()
    cpu.mkdir()
    (memory / "memory.limit_in_bytes").write_text(str(4 * GIB))
    (memory / "memory.usage_in_bytes").write_text(str(GIB))
    (cpu / "cpu.cfs_quota_us").write_text("200000")
    (cpu / "cpu.cfs_period_us").write_text("100000")
    own = "5:memory:/docker/abc\n4:cpu,cpuacct:/docker/abc\n3:freezer:/\n0::/\n"
    assert cgroups.limits(own, tmp_path) == cgroups.Limits(2.0, 4 * GIB, 3 * GIB)


def test_without_limits_there_are_none(tmp_path: Path) -> None:
    files(tmp_path, cpu__cpu_cfs="", memory__x="")
    (tmp_path / "cpu" / "cpu.cfs_quota_us").write_text("-1")
    (tmp_path / "cpu" / "cpu.cfs_period_us").write_text("100000")
    assert cgroups.limits("2:cpu:/\n0::/\n", tmp_path) == cgroups.Limits()


@given(st.text(alphabet="0123456789:/.,acepumory\n\0") | st.text())
def test_any_text_is_taken_for_groups(text: str) -> None:
    cgroups.limits(text, Path("/not/there"))


def test_frozen_groups_of_both_versions() -> None:
    groups = kernel.parse_cgroups("7:freezer,x:/a\n3:memory:/b\n0::/c:d\n")
    assert groups == {"cgroup": "/a", "cgroup2": "/c:d"}
    line = "41 31 0:38 / /sys/fs/cgroup/{} rw,relatime - {}\n"
    text = line.format("unified", "cgroup2 cgroup2 rw") + line.format("f", "cgroup x rw,freezer")
    text += line.format("memory", "cgroup cgroup rw,memory")
    assert [*kernel.parse_cgroup_mounts(text)] == [
        ("cgroup2", Path("/sys/fs/cgroup/unified")),
        ("cgroup", Path("/sys/fs/cgroup/f")),
    ]
    assert kernel.parse_frozen("populated 1\nfrozen 1\n")
    assert kernel.parse_frozen("FROZEN\n")
    assert not kernel.parse_frozen("populated 1\nfrozen 0\n")
    assert not kernel.parse_frozen("THAWED\n")


@given(st.text(alphabet="0123456789:/., -cgroupfez2\n") | st.text())
def test_any_text_is_taken_for_groups_and_mounts(text: str) -> None:
    kernel.parse_cgroups(text)
    kernel.parse_frozen(text)
    list(kernel.parse_cgroup_mounts(text))


def test_meminfo_and_resolv_conf() -> None:
    text = "MemTotal:       24684084 kB\nMemAvailable:   23290000 kB\nHugePages_Total:       0\n"
    assert machine.parse_meminfo(text)["MemTotal"] == 24684084 * 1024
    conf = "# made by hand\nsearch x\nnameserver 10.0.0.1\nnameserver fe80::1%eth0\nnameserver\n"
    assert machine.parse_resolv_conf(conf) == ("10.0.0.1", "fe80::1%eth0")


@given(st.text())
def test_any_text_is_taken_for_them(text: str) -> None:
    machine.parse_meminfo(text)
    machine.parse_resolv_conf(text)


ANSWER = {
    "index": 1,
    "name": "NVIDIA H100",
    "busy": 100,
    "power": 123456,
    "power_limit": 700000,
    "memory_used": 5,
    "memory_total": 80 * GIB,
    "pids": [7, 8],
}


def test_what_the_probe_prints_is_a_gpu_in_our_units() -> None:
    found, missing = machine.parse_gpus(json.dumps([ANSWER]))
    assert missing == ""
    assert found == (Gpu(1, "NVIDIA H100", 1.0, 123.456, 700.0, 5, 80 * GIB, (7, 8)),)


def test_what_a_gpu_cannot_tell_is_not_known() -> None:
    nothing = dict.fromkeys(ANSWER, None) | {"index": 0}
    assert machine.parse_gpus(json.dumps([nothing])) == ((Gpu(0, ""),), "")


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
        lambda inner: (
            st.lists(inner) | st.dictionaries(st.sampled_from([*ANSWER, "missing"]), inner)
        ),
    )
)
def test_any_answer_of_the_probe_is_taken(data: Any) -> None:
    machine.parse_gpus(json.dumps(data))


def test_an_answer_that_was_cut_off_is_said_so() -> None:
    assert machine.parse_gpus(json.dumps([ANSWER])[:-3])[1] != ""


NVML = """
#include <string.h>
#include <unistd.h>
typedef struct { unsigned pid; unsigned long long memory; unsigned a, b; } process;
const char *nvmlErrorString(int status)
{ return status == 18 ? "Driver/library mismatch" : "Not Supported"; }
int nvmlInit_v2(void) { INIT }
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **gpu)
{ *gpu = (void *)(0x7f0000000000 + index); return 0; }
int nvmlDeviceGetName(void *gpu, char *name, unsigned length)
{ strcpy(name, "NVIDIA A100"); return 0; }
int nvmlDeviceGetPowerUsage(void *gpu, unsigned *milliwatts) { return 3; }
int nvmlDeviceGetMemoryInfo(void *gpu, unsigned long long *bytes)
{ bytes[0] = 20; bytes[1] = 10; bytes[2] = 10; return 0; }
int nvmlDeviceGetComputeRunningProcesses_v2(void *gpu, unsigned *count, process *found)
{
    if (*count < 1) { *count = 1; return 7; }
    *count = 1;
    found[0].pid = 42 + (unsigned)(long)gpu;
    return 0;
}
int nvmlDeviceGetP2PStatus(void *one, void *other, int what, int *status)
{
    long a = (long)one & 15, b = (long)other & 15;
    *status = a == 1 && b == 2 ? 3 : 0;
    return a == 0 && b == 2 ? 3 : 0;
}
"""


def with_library(folder: Path, monkeypatch: pytest.MonkeyPatch, init: str) -> None:
    """Have programs find a library that answers as the driver's would."""
    compiler = shutil.which("cc") or pytest.skip("there is no C compiler here")
    (folder / "nvml.c").write_text(NVML.replace("INIT", init))
    command = [compiler, "-shared", "-fPIC", "-w", "-o", "libnvidia-ml.so.1", "nvml.c"]
    subprocess.run(command, cwd=folder, check=True, timeout=60)
    monkeypatch.setenv("LD_LIBRARY_PATH", str(folder))
    monkeypatch.setattr(machine, "_DRIVER_FILES", ("/dev/null",))


def asked(folder: Path, monkeypatch: pytest.MonkeyPatch, init: str) -> tuple[tuple[Gpu, ...], str]:
    with_library(folder, monkeypatch, init)
    return asyncio.run(machine.read_gpus(2.0 if "sleep" in init else 60.0))


def test_the_probe_asks_which_gpus_reach_each_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with_library(tmp_path, monkeypatch, "return 0;")
    command = [sys.executable, "-P", str(machine.NVML_PROBE), "--peers"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert json.loads(said) == {"pairs": [[0, 1, 0], [0, 2, None], [1, 2, 3]]}


def test_the_probe_asks_nvml(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (first, second, _), missing = asked(tmp_path, monkeypatch, "return 0;")
    assert missing == ""
    assert (first.name, first.power, first.busy) == ("NVIDIA A100", None, None)
    assert (second.memory_used, second.pids) == (10, (43,))


def test_a_driver_that_does_not_work_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, missing = asked(tmp_path, monkeypatch, "return 18;")
    assert found == ()
    assert "Driver/library mismatch" in missing


def test_a_driver_that_does_not_answer_is_said_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, missing = asked(tmp_path, monkeypatch, "sleep(1000); return 0;")
    assert (found, "no answer in time" in missing) == ((), True)


def test_without_a_driver_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_DRIVER_FILES", ())
    monkeypatch.setattr(machine, "run_command", None)
    assert asyncio.run(machine.read_gpus(1.0))[0] == ()
