"""Print what NVML says of the GPUs of this machine, as JSON; {"missing": "..."} if nothing.

With --peers: which pairs of GPUs have direct access to each other. With --limit SECONDS: when it
comes to an end, whoever has answered until then.

A program of its own, run by `machine.py` with a time limit: a driver that does not answer holds
whoever asked it in the kernel, and that must not be the monitor. Each GPU is asked by a child of
its own, which tells each answer as it comes: one that does not answer is named, with the question,
and the others are known. It imports nothing of ours, and asks the driver's own library: to have the
package nvidia-ml-py beside a job changes what DeepSpeed and accelerate do there. Names, numbers and
structures are those of nvml.h.
"""

from __future__ import annotations

import contextlib
import ctypes
import functools
import json
import os
import select
import signal
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from ctypes import byref, c_int, c_uint, c_ulonglong, c_void_p
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
_NAME = 96  # bytes, NVML_DEVICE_NAME_V2_BUFFER_SIZE
_TOO_SMALL = 7  # NVML_ERROR_INSUFFICIENT_SIZE
_NOT_SUPPORTED, _NOT_IN_THIS_VERSION, _LAST_LINK = 3, 13, 2  # nvmlReturn_t
_STATES = {15: "lost", 16: "reset required"}  # NVML_ERROR_GPU_IS_LOST, NVML_ERROR_RESET_REQUIRED
_READS = 0  # NVML_P2P_CAPS_INDEX_READ
_BUS_ID = 32  # bytes, NVML_DEVICE_PCI_BUS_ID_BUFFER_SIZE
_UUID = 96  # bytes, NVML_DEVICE_UUID_V2_BUFFER_SIZE
_MOST_LINKS = 36  # NVML_NVLINK_MAX_LINKS
_UNCORRECTED, _SINCE_RESET = 1, 0  # NVML_MEMORY_ERROR_TYPE_UNCORRECTED, NVML_VOLATILE_ECC
_VERSION = 80  # bytes, NVML_SYSTEM_DRIVER_VERSION_BUFFER_SIZE
_FABRIC_DONE = 3  # NVML_GPU_FABRIC_STATE_COMPLETED
_FABRIC_STATES = {1: "not started", 2: "in progress"}  # NVML_GPU_FABRIC_STATE_...
_RECOVERY_FIELD = 230  # NVML_FI_DEV_GET_GPU_RECOVERY_ACTION
_RECOVERY = {  # nvmlDeviceGpuRecoveryAction_t; 0 is none
    **{1: "a reset of the GPU", 2: "a reboot of the machine"},
    **{3: "its traffic with other GPUs to be drained", 4: "a drain and a reset of the GPU"},
}
MOMENTS, PAUSE = 2, 0.2  # NVML itself looks back over a sixth of a second to one
_COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
# nvmlClocksThrottleReason..., those that say that something is amiss: neither idleness nor clocks
# that somebody chose, nor the usual limit of power.
_SLOWDOWNS = {
    **{0x08: "hardware slowdown", 0x20: "too hot", 0x40: "too hot (hardware)"},
    0x80: "power brake (the power supply)",
}
_LISTED_GPUS = "/proc/driver/nvidia/gpus"
_FIRST_NAMESPACE = "pid:[4026531836]"  # PROC_PID_INIT_INO, include/linux/proc_ns.h
_DIE_WITH_PARENT = 1  # PR_SET_PDEATHSIG, linux/prctl.h
_MORE = 8  # processes that may have come between two questions


class NvmlError(Exception):
    """What the library answered in place of a value."""

    def __init__(self, text: str, status: int = 0) -> None:
        super().__init__(text)
        self.status = status  # nvmlReturn_t


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", c_uint), ("memory", c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


class _Pci(ctypes.Structure):  # nvmlPciInfo_t of version 3
    _fields_ = (
        *(("old", ctypes.c_char * 16), ("domain", c_uint), ("bus", c_uint), ("device", c_uint)),
        *(("kind", c_uint), ("subsystem", c_uint), ("name", ctypes.c_char * _BUS_ID)),
    )


class _Fabric(ctypes.Structure):  # nvmlGpuFabricInfo_t
    _fields_ = (
        *(("cluster", ctypes.c_ubyte * 16), ("status", c_int), ("clique", c_uint)),
        ("state", c_uint),
    )


class _Field(ctypes.Structure):  # nvmlFieldValue_t, whose value is a union
    _fields_ = (
        *(("field", c_uint), ("scope", c_uint), ("at", c_ulonglong), ("took", c_ulonglong)),
        *(("kind", c_int), ("status", c_int), ("value", c_ulonglong)),
    )


class _Process(ctypes.Structure):  # nvmlProcessInfo_t of version 2 and 3
    _fields_ = (
        *(("pid", c_uint), ("memory", c_ulonglong)),
        *(("gpu_instance", c_uint), ("compute_instance", c_uint)),
    )


class Nvml:
    """The questions of this program, to the driver's library."""

    def __init__(self, library: Any) -> None:
        """`library` is what ctypes has loaded. Raises NvmlError, AttributeError."""
        self._library = library
        library.nvmlErrorString.restype = ctypes.c_char_p
        self._ask("nvmlInit_v2")

    def count(self) -> int:
        """Return how many GPUs there are, those with which something is wrong among them."""
        return self._number("nvmlDeviceGetCount_v2")

    def gpu(self, index: int) -> c_void_p:
        """Return a handle for a GPU."""
        handle = c_void_p()
        self._ask("nvmlDeviceGetHandleByIndex_v2", c_uint(index), byref(handle))
        return handle

    def bus(self, gpu: c_void_p) -> str:
        """Return its place on the PCI bus, as the kernel writes it: "0000:3b:00.0"."""
        found = _Pci()
        self._ask("nvmlDeviceGetPciInfo_v3", gpu, byref(found))
        return f"{found.domain:04x}:{found.bus:02x}:{found.device:02x}.0"

    def uuid(self, gpu: c_void_p) -> str:
        """Return "GPU-03460ed0-..."."""
        text = ctypes.create_string_buffer(_UUID)
        self._ask("nvmlDeviceGetUUID", gpu, text, c_uint(_UUID))
        return text.value.decode(errors="replace")

    def name(self, gpu: c_void_p) -> str:
        """Return "NVIDIA H200"."""
        text = ctypes.create_string_buffer(_NAME)
        self._ask("nvmlDeviceGetName", gpu, text, c_uint(_NAME))
        return text.value.decode(errors="replace")

    def busy(self, gpu: c_void_p) -> int:
        """Return of a hundred parts of the last moment those in which it computed."""
        found = _Utilization()
        self._ask("nvmlDeviceGetUtilizationRates", gpu, byref(found))
        return int(found.gpu)

    def power(self, gpu: c_void_p) -> int:
        """Return milliwatts."""
        return self._number("nvmlDeviceGetPowerUsage", gpu)

    def power_limit(self, gpu: c_void_p) -> int:
        """Return milliwatts."""
        return self._number("nvmlDeviceGetEnforcedPowerLimit", gpu)

    def memory(self, gpu: c_void_p) -> tuple[int, int]:
        """Return used and total bytes."""
        found = _Memory()
        self._ask("nvmlDeviceGetMemoryInfo", gpu, byref(found))
        return int(found.used), int(found.total)

    def pids(self, gpu: c_void_p) -> list[int]:
        """Return the processes that compute on it."""
        name = "nvmlDeviceGetComputeRunningProcesses_v3"
        if not hasattr(self._library, name):  # a driver before 510
            name = name[:-1] + "2"
        count = c_uint(0)
        status = getattr(self._library, name)(gpu, byref(count), None)
        if status not in (0, _TOO_SMALL):
            raise self._error(status)
        found = (_Process * (count.value + _MORE))()
        count.value = len(found)
        self._ask(name, gpu, byref(count), found)
        return [one.pid for one in found[: count.value]]

    def compute_mode(self, gpu: c_void_p) -> str:
        """Return who may use it: "default", "exclusive process", "prohibited"."""
        mode = self._number("nvmlDeviceGetComputeMode", gpu)
        return _COMPUTE_MODES.get(mode, f"mode {mode}")

    def mig(self, gpu: c_void_p) -> bool:
        """Return whether it is divided into several (MIG)."""
        now, later = c_uint(), c_uint()
        self._ask("nvmlDeviceGetMigMode", gpu, byref(now), byref(later))
        return now.value == 1

    def slowed_by(self, gpu: c_void_p) -> list[str]:
        """Return what slows it down."""
        found = c_ulonglong()
        self._ask("nvmlDeviceGetCurrentClocksThrottleReasons", gpu, byref(found))
        return [words for bit, words in _SLOWDOWNS.items() if found.value & bit]

    def memory_errors(self, gpu: c_void_p) -> int:
        """Return how many errors of its memory were not corrected since it was reset last."""
        found = c_ulonglong()
        kind = (c_int(_UNCORRECTED), c_int(_SINCE_RESET))
        self._ask("nvmlDeviceGetTotalEccErrors", gpu, *kind, byref(found))
        return int(found.value)

    def rows(self, gpu: c_void_p) -> list[str]:
        """Return what is amiss with rows of its memory that were to be replaced by others."""
        corrected, uncorrected, pending, failed = c_uint(), c_uint(), c_uint(), c_uint()
        found = (byref(corrected), byref(uncorrected), byref(pending), byref(failed))
        self._ask("nvmlDeviceGetRemappedRows", gpu, *found)
        both = ((pending, "rows wait for a reset to be remapped"), (failed, "remapping failed"))
        return [words for is_so, words in both if is_so.value]

    def links_down(self, gpu: c_void_p) -> list[int]:
        """Return which of its NVLinks are down, none where all are: then it has no bridge."""
        states: list[bool] = []
        for link in range(_MOST_LINKS):
            is_up = c_uint()
            status = self._library.nvmlDeviceGetNvLinkState(gpu, c_uint(link), byref(is_up))
            if status in (_LAST_LINK, _NOT_SUPPORTED):
                break
            if status:
                raise self._error(status)
            states.append(is_up.value == 1)
        return [link for link, is_up in enumerate(states) if not is_up] if any(states) else []

    def pcie_width(self, gpu: c_void_p) -> list[int]:
        """Return how many lanes of PCIe it uses, and how many it can use."""
        now = self._number("nvmlDeviceGetCurrPcieLinkWidth", gpu)
        return [now, self._number("nvmlDeviceGetMaxPcieLinkWidth", gpu)]

    def persistence(self, gpu: c_void_p) -> bool:
        """Return whether the driver stays loaded for it while nobody uses it."""
        return self._number("nvmlDeviceGetPersistenceMode", gpu) == 1

    def fabric(self, gpu: c_void_p) -> str:
        """Return what is amiss with its place in the NVLink fabric, "" if nothing, or none."""
        found = _Fabric()
        self._ask("nvmlDeviceGetGpuFabricInfo", gpu, byref(found))
        if found.state == _FABRIC_DONE and found.status:
            return f"failed ({self._error(found.status)})"
        return _FABRIC_STATES.get(found.state, "")

    def recovery(self, gpu: c_void_p) -> str:
        """Return what the driver asks for so that a GPU recovers from its errors, "" for nothing,
        or where it does not tell (before 570).
        """
        found = _Field(field=_RECOVERY_FIELD)
        self._ask("nvmlDeviceGetFieldValues", gpu, c_int(1), byref(found))
        return "" if found.status else _RECOVERY.get(found.value & 0xFFFFFFFF, "")

    def moments(self, gpu: c_void_p) -> list[list[int]]:
        """Return (percent of the time, milliwatts) at some later moments."""
        found = []
        for _ in range(MOMENTS):
            time.sleep(PAUSE)
            found.append([self.busy(gpu), self.power(gpu)])
        return found

    def driver(self, gpu: c_void_p) -> str:
        """Return the driver's version: "570.158.01"."""
        text = ctypes.create_string_buffer(_VERSION)
        self._ask("nvmlSystemGetDriverVersion", text, c_uint(_VERSION))
        return text.value.decode(errors="replace")

    def peer_status(self, other: c_void_p, one: c_void_p) -> int:
        """Return nvmlGpuP2PStatus_t for reading: 0 is direct access."""
        status = c_int()
        self._ask("nvmlDeviceGetP2PStatus", one, other, c_int(_READS), byref(status))
        return status.value

    def _number(self, question: str, *about: Any) -> int:
        found = c_uint()
        self._ask(question, *about, byref(found))
        return found.value

    def _ask(self, question: str, *about: Any) -> None:
        status = getattr(self._library, question)(*about)
        if status:
            raise self._error(status)

    def _error(self, status: int) -> NvmlError:
        text: bytes | None = self._library.nvmlErrorString(c_int(status))
        words = text.decode(errors="replace") if text else f"NVML error {status}"
        return NvmlError(words, status)


def main(argv: list[str]) -> int:
    if argv == ["--peers"]:
        print(json.dumps(_ask_for_peers()))
        return 0
    limit = float(argv[1]) if argv[:1] == ["--limit"] else 5.0
    print(json.dumps(ask_all(time.monotonic() + limit)))
    return 0


# ---- who is who ----------------------------------------------------------------------------------


def _tell_pids(nvml: Nvml, gpu: c_void_p) -> dict[str, list[int]]:
    """Return the processes that compute on a GPU, as we number them, or as the host does.

    In a container older drivers tell the host's numbers: there we believe them only if each is a
    process here that has a GPU open.
    """
    pids = nvml.pids(gpu)
    with contextlib.suppress(OSError):
        if not has_numbers_of_host():
            return {"here": pids} if all(map(_has_gpu_open, pids)) else {"host": pids}
    return {"here": pids}


def has_numbers_of_host() -> bool:
    """Return whether processes have the numbers here that the host gives them. Raises OSError."""
    return os.readlink("/proc/self/ns/pid") == _FIRST_NAMESPACE


def _has_gpu_open(pid: int) -> bool:
    try:
        with os.scandir(f"/proc/{pid}/fd") as entries:
            return any(os.readlink(entry.path).startswith("/dev/nvidia") for entry in entries)
    except OSError:
        return False


# ---- each GPU by a process of its own ------------------------------------------------------------


def ask_all(until: float) -> list[dict[str, object]] | dict[str, object]:
    """Return what each GPU answers until then (monotonic)."""
    half = time.monotonic() + (until - time.monotonic()) / 2
    ((counted, is_whole),) = answer_apart([_count], half)
    if not is_whole:
        return {"silent": True, "listed": _list_buses()}
    if "missing" in counted:
        return counted
    count = counted["count"]
    assert isinstance(count, int)
    answers = answer_apart([functools.partial(_tell_gpu, n) for n in range(count)], until)
    buses = _list_buses()
    found: list[dict[str, object]] = []
    for index, (answer, is_whole) in enumerate(answers):
        by_place = {"bus": buses[index]} if len(buses) == count else {}
        found.append({"index": index, **by_place, **answer})
        if not is_whole:
            found[-1]["state"] = "silent"
    return found


def _count() -> Iterator[dict[str, object]]:
    try:
        yield {"count": Nvml(ctypes.CDLL(LIBRARY)).count()}
    except (OSError, NvmlError, AttributeError) as error:
        yield {"missing": f"NVML does not work ({error}): nothing is known of GPUs."}


def _tell_gpu(index: int) -> Iterator[dict[str, object]]:
    """Yield what a GPU answers, question by question."""
    errors: dict[str, str] = {}
    try:
        yield {"asked": "its handle"}
        nvml = Nvml(ctypes.CDLL(LIBRARY))
        gpu = nvml.gpu(index)
    except NvmlError as error:
        yield _failed("handle", error, errors) | {"asked": ""}
        return
    for name, question in _QUESTIONS.items():
        yield {"asked": name}
        try:
            yield {name: question(nvml, gpu)}
        except AttributeError:  # this version of the library does not know the question
            continue
        except NvmlError as error:
            # Not every GPU can answer everything: MIG, virtual GPUs, those of consumers.
            if error.status not in (_NOT_SUPPORTED, _NOT_IN_THIS_VERSION):
                yield _failed(name, error, errors)
    yield {"asked": ""}


def _failed(name: str, error: NvmlError, errors: dict[str, str]) -> dict[str, object]:
    errors[name] = str(error)
    state = _STATES.get(error.status) or ("no handle" if name == "handle" else "")
    return {"errors": errors, **({"state": state} if state else {})}


_QUESTIONS: dict[str, Callable[[Nvml, c_void_p], object]] = {
    "bus": Nvml.bus,
    "uuid": Nvml.uuid,
    "name": Nvml.name,
    "memory": Nvml.memory,
    "pids": _tell_pids,
    "busy": Nvml.busy,
    "power": Nvml.power,
    "power_limit": Nvml.power_limit,
    "compute_mode": Nvml.compute_mode,
    "mig": Nvml.mig,
    "slowed_by": Nvml.slowed_by,
    "memory_errors": Nvml.memory_errors,
    "rows": Nvml.rows,
    "links_down": Nvml.links_down,
    "pcie_width": Nvml.pcie_width,
    "persistence": Nvml.persistence,
    "fabric": Nvml.fabric,
    "recovery": Nvml.recovery,
    "moments": Nvml.moments,
    "driver": Nvml.driver,
}
_Tell = Callable[[], Iterable[dict[str, object]]]


def answer_apart(questions: list[_Tell], until: float) -> list[tuple[dict[str, object], bool]]:
    """Return for each question what its own child told until then, and whether that is all. A
    child that is not ready is killed; one that the kernel holds is left to it.
    """
    children = [_start_child(tell) for tell in questions]
    texts = {reader: b"" for _, reader in children}
    poll = select.poll()
    for reader in texts:
        poll.register(reader, select.POLLIN)
    still = set(texts)
    while still and (left := until - time.monotonic()) > 0:
        for reader, _ in poll.poll(left * 1000):
            block = os.read(reader, 1 << 16)
            texts[reader] += block
            if not block:
                poll.unregister(reader)
                still.discard(reader)
    for pid, reader in children:
        if reader in still:
            os.kill(pid, signal.SIGKILL)
        os.close(reader)
        os.waitpid(pid, os.WNOHANG if reader in still else 0)
    return [_merge_told(texts[reader]) for _, reader in children]


def _merge_told(text: bytes) -> tuple[dict[str, object], bool]:
    merged: dict[str, object] = {}
    for line in text.split(b"\n")[:-1]:
        merged |= json.loads(line)
    return merged, merged.pop("end", False) is True


def _start_child(tell: _Tell) -> tuple[int, int]:
    """Return a child that tells, a line each, and the descriptor where that comes."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid:
        os.close(writer)
        return pid, reader
    with contextlib.suppress(BaseException):
        ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL)
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in (0, 1, 2):  # who waits for what we print must not wait for a child
            os.dup2(nowhere, descriptor)
        for told in _and_end(tell()):
            os.write(writer, json.dumps(told).encode() + b"\n")
    os._exit(0)


def _and_end(told: Iterable[dict[str, object]]) -> Iterator[dict[str, object]]:
    yield from told
    yield {"end": True}


def _list_buses() -> list[str]:
    """Return where the kernel's driver has GPUs on the bus, in NVML's order."""
    try:
        return sorted(os.listdir(_LISTED_GPUS))
    except OSError:
        return []


# ---- pairs ---------------------------------------------------------------------------------------


def _ask_for_peers() -> dict[str, object]:
    """Return each pair of GPUs, by their numbers, and its status; None where that is not known."""
    try:
        nvml = Nvml(ctypes.CDLL(LIBRARY))
        gpus = [_handle(nvml, index) for index in range(nvml.count())]
    except (OSError, NvmlError, AttributeError) as error:
        return {"missing": f"NVML does not work ({error}): nothing is known of GPUs."}
    pairs = [
        [a, b, _peer_status(nvml, gpus[a], gpus[b])]
        for a in range(len(gpus))
        for b in range(a + 1, len(gpus))
    ]
    return {"pairs": pairs}


def _handle(nvml: Nvml, index: int) -> c_void_p | None:
    try:
        return nvml.gpu(index)
    except NvmlError:
        return None


def _peer_status(nvml: Nvml, one: c_void_p | None, other: c_void_p | None) -> int | None:
    if one is None or other is None:
        return None
    try:
        return nvml.peer_status(other, one)
    except (NvmlError, AttributeError):
        return None


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
