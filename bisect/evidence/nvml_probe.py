"""Print what NVML says of the GPUs of this machine, as JSON; {"missing": "..."} if nothing.

With --peers: which pairs of GPUs have direct access to each other.

A program of its own, run by `machine.py` with a time limit: a driver that does not answer holds
whoever asked it in the kernel, and that must not be the monitor. It imports nothing of ours, and
asks the driver's own library: to have the package nvidia-ml-py beside a job changes what DeepSpeed
and accelerate do there. Names, numbers and structures are those of nvml.h.
"""

from __future__ import annotations

import ctypes
import functools
import json
import sys
from collections.abc import Callable
from ctypes import byref, c_int, c_uint, c_ulonglong, c_void_p
from typing import Any, TypeVar

LIBRARY = "libnvidia-ml.so.1"
_NAME = 96  # bytes, NVML_DEVICE_NAME_V2_BUFFER_SIZE
_TOO_SMALL = 7  # NVML_ERROR_INSUFFICIENT_SIZE
_READS = 0  # NVML_P2P_CAPS_INDEX_READ
_MORE = 8  # processes that may have come between two questions
Found = TypeVar("Found")


class NvmlError(Exception):
    """What the library answered in place of a value."""


class _Utilization(ctypes.Structure):
    _fields_ = (("gpu", c_uint), ("memory", c_uint))


class _Memory(ctypes.Structure):
    _fields_ = (("total", c_ulonglong), ("free", c_ulonglong), ("used", c_ulonglong))


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

    def gpus(self) -> list[c_void_p]:
        """Return a handle for each GPU."""
        count = self._number("nvmlDeviceGetCount_v2")
        found = [c_void_p() for _ in range(count)]
        for index, handle in enumerate(found):
            self._ask("nvmlDeviceGetHandleByIndex_v2", c_uint(index), byref(handle))
        return found

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
        return NvmlError(text.decode(errors="replace") if text else f"NVML error {status}")


def main(argv: list[str]) -> int:
    try:
        nvml = Nvml(ctypes.CDLL(LIBRARY))
        gpus = nvml.gpus()
    except (OSError, NvmlError, AttributeError) as error:
        print(json.dumps({"missing": f"NVML does not work ({error}): nothing is known of GPUs."}))
        return 0
    if argv == ["--peers"]:
        print(json.dumps({"pairs": peers(nvml, gpus)}))
    else:
        print(json.dumps([{"index": n, **about(nvml, gpu)} for n, gpu in enumerate(gpus)]))
    return 0


def about(nvml: Nvml, gpu: c_void_p) -> dict[str, object]:
    """Return what a GPU answers; None for what it does not."""
    used, total = _ask_gpu(nvml.memory, gpu) or (None, None)
    return {
        "name": _ask_gpu(nvml.name, gpu),
        "busy": _ask_gpu(nvml.busy, gpu),
        "power": _ask_gpu(nvml.power, gpu),
        "power_limit": _ask_gpu(nvml.power_limit, gpu),
        "memory_used": used,
        "memory_total": total,
        "pids": _ask_gpu(nvml.pids, gpu),
    }


def peers(nvml: Nvml, gpus: list[c_void_p]) -> list[list[int | None]]:
    """Return each pair of GPUs, by their numbers, and its status; None where that is not known."""
    return [
        [a, b, _ask_gpu(functools.partial(nvml.peer_status, gpus[b]), gpus[a])]
        for a in range(len(gpus))
        for b in range(a + 1, len(gpus))
    ]


def _ask_gpu(question: Callable[[c_void_p], Found], gpu: c_void_p) -> Found | None:
    # Not every GPU can answer everything (MIG, virtual GPUs), nor does every version ask it.
    try:
        return question(gpu)
    except (NvmlError, AttributeError):
        return None


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
