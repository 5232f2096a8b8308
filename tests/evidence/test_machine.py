"""What a machine and a control group offer, from made-up files; NVML, from made-up answers."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Callable
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


def test_who_was_killed_for_want_of_memory_is_counted_where_the_limit_is(tmp_path: Path) -> None:
    """In the second version a group counts those of its groups below too: a task of Slurm's beside
    the one that was killed has none of its own.
    """
    files(tmp_path, job__memory_max=f"{GIB}\n", job__memory_current="1\n")
    files(tmp_path, job__memory_events="low 0\noom 2\noom_kill 3\noom_group_kill 0\n")
    files(tmp_path, job__step__memory_max="max\n", job__step__memory_events="oom_kill 0\n")
    (tmp_path / "memory.events").write_text("oom_kill 40\n")
    assert cgroups.count_oom_kills("0::/job/step\n", tmp_path) == 3
    first = tmp_path / "memory" / "task"
    first.mkdir(parents=True)
    (first / "memory.oom_control").write_text("oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")
    assert cgroups.count_oom_kills("4:memory:/task\n3:cpu:/\n", tmp_path) == 1
    assert cgroups.count_oom_kills("3:cpu:/\n", tmp_path) is None


@given(st.text(alphabet="0123456789:/.,acepumory\n\0") | st.text())
def test_any_text_is_taken_for_groups(text: str) -> None:
    cgroups.limits(text, Path("/not/there"))
    assert cgroups.count_oom_kills(text, Path("/not/there")) is None


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
    "memory": [5, 80 * GIB],
    "pids": {"here": [7, 8]},
    "bus": "0000:3b:00.0",
    "slowed_by": ["too hot"],
    "links_down": [4],
}


def test_what_the_probe_prints_is_a_gpu_in_our_units() -> None:
    (found,), missing = machine.parse_gpus(json.dumps([ANSWER]))
    assert missing == ()
    assert found == Gpu(
        *(1, "NVIDIA H100", 1.0, 123.456, 700.0, 5, 80 * GIB, (7, 8)),
        bus="0000:3b:00.0",
        slowed_by=("too hot",),
        links_down=(4,),
    )


def test_what_a_gpu_cannot_tell_is_not_known() -> None:
    nothing = dict.fromkeys(ANSWER, None) | {"index": 0}
    assert machine.parse_gpus(json.dumps([nothing])) == ((Gpu(0, ""),), ())


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
    assert machine.parse_gpus(json.dumps([ANSWER])[:-3])[1] != ()


# It has the functions that a driver of 450 has, some of a newer one, and three GPUs. WHICH of them
# answers as HOW says; every GPU does as it should without that.
NVML = """
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
typedef struct { unsigned pid; unsigned long long memory; unsigned a, b; } process;
typedef struct { char old[16]; unsigned domain, bus, device, kind, sub; char name[32]; } pci;
static int is(const char *name, const char *value)
{ const char *found = getenv(name); return found && !strcmp(found, value); }
static int wrong(void *gpu, const char *question)
{
    const char *which = getenv("WHICH"), *at = getenv("AT");
    if (!which || !at || atoi(which) != (int)((long)gpu & 15)) return 0;
    if (strcmp(at, question) && strcmp(at, "all")) return 0;
    if (is("HOW", "hangs")) sleep(1000);
    if (is("HOW", "dies")) abort();
    if (is("HOW", "lies")) return 4711;
    return atoi(getenv("HOW"));
}
const char *nvmlErrorString(int status)
{
    return status == 15 ? "GPU is lost" : status == 16 ? "GPU requires reset"
        : status == 18 ? "Driver/library mismatch" : status == 999 ? "Unknown Error"
        : status == 4711 ? 0 : "Not Supported";
}
int nvmlInit_v2(void)
{
    if (is("INIT", "hangs")) sleep(1000);
    if (is("INIT", "slow")) usleep(300000);
    return is("INIT", "18") ? 18 : 0;
}
int nvmlDeviceGetCount_v2(unsigned *count) { *count = 3; return 0; }
int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **gpu)
{ *gpu = (void *)(0x7f0000000000 + index); return wrong(*gpu, "handle"); }
int nvmlDeviceGetName(void *gpu, char *name, unsigned length)
{ strcpy(name, "NVIDIA A100"); return wrong(gpu, "name"); }
int nvmlDeviceGetPciInfo_v3(void *gpu, pci *found)
{ found->domain = 0; found->bus = 0x3b + ((long)gpu & 15); found->device = 0; return 0; }
int nvmlDeviceGetPowerUsage(void *gpu, unsigned *milliwatts)
{ *milliwatts = 70000; return wrong(gpu, "power") ? wrong(gpu, "power") : 0; }
int nvmlDeviceGetEnforcedPowerLimit(void *gpu, unsigned *milliwatts) { return 3; }
int nvmlDeviceGetMemoryInfo(void *gpu, unsigned long long *bytes)
{ bytes[0] = 20; bytes[1] = 10; bytes[2] = 10; return wrong(gpu, "memory"); }
int nvmlDeviceGetUtilizationRates(void *gpu, unsigned *found)
{
    static int asked; int quiet = is("BUSY", "falls") && asked++;
    found[0] = quiet ? 3 : 100; found[1] = 0;
    return is("BUSY", "") || !getenv("BUSY") ? 3 : 0;
}
int nvmlDeviceGetCurrPcieLinkWidth(void *gpu, unsigned *width)
{ *width = (long)gpu & 15 ? 8 : 16; return 0; }
int nvmlDeviceGetMaxPcieLinkWidth(void *gpu, unsigned *width) { *width = 16; return 0; }
int nvmlDeviceGetPersistenceMode(void *gpu, unsigned *mode) { *mode = 1; return 0; }
typedef struct { unsigned char cluster[16]; int status; unsigned clique, state; } fabric;
int nvmlDeviceGetGpuFabricInfo(void *gpu, fabric *found)
{
    const char *state = getenv("FABRIC");
    found->status = is("FABRIC", "failed") ? 999 : 0;
    found->state = !state ? 0 : is("FABRIC", "failed") ? 3 : atoi(state);
    return 0;
}
typedef struct { unsigned field, scope; long long at, took; int kind, status;
    union { unsigned number; unsigned long long large; } value; } field;
int nvmlDeviceGetFieldValues(void *gpu, int count, field *found)
{
    const char *action = getenv("RECOVERY");
    found->value.large = 0xabababab00000000ULL;  /* only the smaller part is said to be set */
    found->status = count == 1 && found->field == 230 && action ? 0 : 3;
    found->value.number = action ? atoi(action) : 4711;
    return 0;
}
int nvmlSystemGetDriverVersion(char *text, unsigned length)
{ strcpy(text, "570.158.01"); return is("DRIVER", "hangs") ? sleep(1000) : 0; }
int nvmlDeviceGetComputeMode(void *gpu, unsigned *mode) { *mode = 3; return 0; }
int nvmlDeviceGetMigMode(void *gpu, unsigned *now, unsigned *later) { *now = 0; return 0; }
int nvmlDeviceGetCurrentClocksThrottleReasons(void *gpu, unsigned long long *found)
{ *found = 0x44; return 0; }
int nvmlDeviceGetTotalEccErrors(void *gpu, int kind, int since, unsigned long long *found)
{ *found = kind == 1 && since == 0 ? 2 : 99; return 0; }
int nvmlDeviceGetRemappedRows(void *gpu, unsigned *a, unsigned *b, unsigned *pending, unsigned *bad)
{ *pending = 1; *bad = 0; return 0; }
int nvmlDeviceGetNvLinkState(void *gpu, unsigned link, unsigned *is_up)
{ *is_up = link != 2; return link < 4 ? 0 : 2; }
int nvmlDeviceGetComputeRunningProcesses_v2(void *gpu, unsigned *count, process *found)
{
    if (*count < 1) { *count = 1; return 7; }
    *count = 1;
    found[0].pid = 42 + (unsigned)((long)gpu & 15);
    return 0;
}
int nvmlDeviceGetP2PStatus(void *one, void *other, int what, int *status)
{
    long a = (long)one & 15, b = (long)other & 15;
    *status = a == 1 && b == 2 ? 3 : 0;
    return a == 0 && b == 2 ? 3 : 0;
}
"""
ENOUGH, SHORT = 60.0, 10.0  # seconds for the probe: more than it takes, and where it is to run out
Answer = tuple[tuple[Gpu, ...], tuple[str, ...]]


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a library that has NVML's functions."""
    compiler = shutil.which("cc") or pytest.skip("there is no C compiler here")
    folder = tmp_path_factory.mktemp("nvml")
    (folder / "nvml.c").write_text(NVML)
    command = [compiler, "-shared", "-fPIC", "-w", "-o", "libnvidia-ml.so.1", "nvml.c"]
    subprocess.run(command, cwd=folder, check=True, timeout=60)
    return folder


@pytest.fixture
def ask(library: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Answer]:
    """Return what is known of the GPUs of a machine whose library behaves as `how` says."""

    def asked(limit: float = ENOUGH, **how: str) -> Answer:
        monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
        monkeypatch.setattr(machine, "_DRIVER_FILES", ("/dev/null",))
        for name, value in how.items():
            monkeypatch.setenv(name, value)
        return asyncio.run(machine.read_gpus(limit))

    return asked


Ask = Callable[..., Answer]


def test_the_probe_asks_which_gpus_reach_each_other(
    library: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LD_LIBRARY_PATH", str(library))
    command = [sys.executable, "-P", str(machine.NVML_PROBE), "--peers"]
    said = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert json.loads(said) == {"pairs": [[0, 1, 0], [0, 2, None], [1, 2, 3]]}


def test_the_probe_asks_nvml(ask: Ask) -> None:
    (first, second, _), missing = ask()
    assert missing == ()
    assert (first.name, first.power, first.power_limit, first.busy) == (
        "NVIDIA A100",
        70,
        None,
        None,
    )
    assert (second.memory_used, second.bus) == (10, "0000:3c:00.0")
    assert (second.compute_mode, second.mig) == ("exclusive process", False)
    assert second.slowed_by == ("too hot (hardware)",)  # the limit of power is nothing amiss
    assert (second.memory_errors, second.links_down) == (2, (2,))
    assert second.rows == ("rows wait for a reset to be remapped",)


def test_links_of_the_bus_and_persistence_are_told(ask: Ask) -> None:
    (first, second, _), _ = ask()
    assert (first.pcie_width, first.pcie_width_most) == (16, 16)
    assert (second.pcie_width, second.pcie_width_most) == (8, 16)
    assert first.persistence is True


@pytest.mark.parametrize(
    ("said", "fabric"),
    [
        (None, ""),  # it has none
        ("1", "not started"),
        ("2", "in progress"),
        ("3", ""),
        ("failed", "failed (Unknown Error)"),
    ],
)
def test_a_gpu_that_is_not_yet_part_of_its_fabric_is_told(
    ask: Ask, said: str | None, fabric: str
) -> None:
    """Without the fabric CUDA does not start on machines with NVSwitch."""
    found, _ = ask(**({} if said is None else {"FABRIC": said}))
    assert {gpu.fabric for gpu in found} == {fabric}


@pytest.mark.parametrize(
    ("said", "asks"),
    [(None, ""), ("0", ""), ("1", "a reset of the GPU"), ("2", "a reboot of the machine")],
)
def test_what_the_driver_asks_for_after_errors_is_told(
    ask: Ask, said: str | None, asks: str
) -> None:
    """It is known where the kernel's log may not be read."""
    found, missing = ask(**({} if said is None else {"RECOVERY": said}))
    assert {gpu.recovery for gpu in found} == {asks}
    assert missing == ()


@pytest.mark.parametrize(("how", "least"), [("all", 1.0), ("falls", 0.03)])
def test_a_gpu_is_busy_that_is_so_at_each_of_several_moments(
    ask: Ask, how: str, least: float
) -> None:
    found, _ = ask(BUSY=how)
    assert {gpu.least_busy for gpu in found} == {least}
    assert {gpu.busy for gpu in found} == {1.0}
    assert {gpu.most_power for gpu in found} == {70.0}


def test_the_version_of_the_driver_is_known(ask: Ask, monkeypatch: pytest.MonkeyPatch) -> None:
    ask()
    found = asyncio.run(machine.read_machine(ENOUGH))
    assert found.driver == "570.158.01"
    monkeypatch.setenv("DRIVER", "hangs")
    assert len(asyncio.run(machine.read_machine(SHORT)).gpus) == 3


@pytest.mark.parametrize(
    ("at", "how", "state", "words"),
    [
        ("handle", "15", "lost", "NVML says that it is lost (handle: GPU is lost)"),
        ("name", "15", "lost", "NVML says that it is lost (name: GPU is lost)"),
        ("handle", "16", "reset required", "must be reset (handle: GPU requires reset)"),
        ("handle", "999", "no handle", "NVML does not find it (handle: Unknown Error)"),
        ("memory", "999", "", "NVML did not answer all (memory: Unknown Error)"),
        ("power", "lies", "", "NVML did not answer all (power: NVML error 4711)"),
    ],
)
def test_a_gpu_in_trouble_is_named_and_the_others_are_known(
    ask: Ask, at: str, how: str, state: str, words: str
) -> None:
    (first, second, third), (sentence,) = ask(WHICH="1", AT=at, HOW=how)
    assert (first.name, third.name) == ("NVIDIA A100",) * 2
    assert second.state == state
    assert words in second.said
    assert sentence == f"GPU 1{' (0000:3c:00.0)' if at != 'handle' else ''}: {second.said}."


@pytest.mark.parametrize(("at", "how"), [("handle", "hangs"), ("memory", "hangs"), ("all", "dies")])
def test_a_gpu_that_does_not_answer_does_not_silence_the_others(
    ask: Ask, at: str, how: str
) -> None:
    (first, second, third), (sentence,) = ask(SHORT, WHICH="2", AT=at, HOW=how)
    assert (first.memory_used, second.memory_used, third.memory_used) == (10, 10, None)
    assert (first.state, third.state) == ("", "silent")
    what = "memory" if at == "memory" else "its handle"
    assert f"the driver gave no answer (asked for {what})" in sentence
    assert third.name == ("NVIDIA A100" if at == "memory" else "")  # what came before is kept


def test_a_slow_driver_is_waited_for(ask: Ask) -> None:
    found, missing = ask(INIT="slow")
    assert (len(found), missing) == (3, ())


def test_a_driver_that_does_not_work_is_said_so(ask: Ask) -> None:
    found, (missing,) = ask(INIT="18")
    assert found == ()
    assert "Driver/library mismatch" in missing


def test_a_driver_that_does_not_answer_is_said_so(ask: Ask) -> None:
    found, (missing,) = ask(2.0, INIT="hangs")
    assert (found, "no answer in time" in missing) == ((), True)


def test_no_child_of_the_probe_is_left(ask: Ask, library: Path) -> None:
    ask(2.0, INIT="hangs")
    ask(SHORT, WHICH="2", AT="memory", HOW="hangs")
    deadline = time.monotonic() + 60
    while _uses(library) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert _uses(library) == []


def _uses(library: Path) -> list[str]:
    """Return the processes that have a library of this folder in memory."""
    found = []
    for path in Path("/proc").glob("[0-9]*/maps"):
        try:
            found += [path.parent.name] if str(library) in path.read_text() else []
        except OSError:
            continue
    return found


def test_numbers_of_processes_that_are_the_hosts_name_nobody_here() -> None:
    answer = ANSWER | {"pids": {"host": [7, 8]}}
    (found,), _ = machine.parse_gpus(json.dumps([answer]))
    assert (found.pids, found.host_pids) == ((), (7, 8))


def test_a_driver_that_never_answers_leaves_the_list_of_the_kernel() -> None:
    listed = {"silent": True, "listed": ["0000:3b:00.0", "0000:86:00.0"]}
    assert "0000:3b:00.0, 0000:86:00.0" in machine.parse_gpus(json.dumps(listed))[1][0]


def test_without_a_driver_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine, "_DRIVER_FILES", ())
    monkeypatch.setattr(machine, "run_command", None)
    assert asyncio.run(machine.read_gpus(1.0))[0] == ()


def test_errors_of_gpus_are_those_since_the_start_of_the_job(tmp_path: Path) -> None:
    log = tmp_path / "kmsg"
    now = time.monotonic()
    line = "NVRM: Xid (PCI:0000:{:02}:00): 79, pid=1, name=python3, GPU has fallen off the bus."
    times = {1: now - 5000.0, 2: now - 20.0}
    log.write_text(
        "".join(f"3,{n},{int(at * 1e6)},-;{line.format(n)}\n" for n, at in times.items())
    )
    read = machine.read_machine(since=now - 100.0, kernel_log=str(log))
    assert [one.bus for one in asyncio.run(read).gpu_errors] == ["0000:02:00"]


def test_a_log_that_cannot_be_read_is_missing_and_none_is_where_nobody_asks(tmp_path: Path) -> None:
    none = str(tmp_path / "none")
    found = asyncio.run(machine.read_machine(since=0.0, kernel_log=none))
    assert any("Xid" in sentence for sentence in found.missing)
    assert not any("Xid" in s for s in asyncio.run(machine.read_machine(kernel_log=none)).missing)
