"""Print what NVML says of the GPUs of this machine, as JSON; {"missing": "..."} if nothing.

A program of its own, run by `gpus.py` with a time limit: a driver that does not answer holds
whoever asked it in the kernel, and that must not be the monitor. It imports nothing of ours.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any


def main() -> int:
    try:
        import pynvml
    except ImportError:
        print(json.dumps({"missing": "nvidia-ml-py is not installed: nothing is known of GPUs."}))
        return 0
    try:
        pynvml.nvmlInit()
        count = pynvml.nvmlDeviceGetCount()
    except pynvml.NVMLError as error:
        print(json.dumps({"missing": f"NVML does not work ({error}): nothing is known of GPUs."}))
        return 0
    print(json.dumps([_gpu(pynvml, index) for index in range(count)]))
    return 0


def _gpu(nvml: Any, index: int) -> dict[str, object]:
    def ask(question: Callable[[Any], Any]) -> Any:
        # Not every GPU can answer everything (MIG, virtual GPUs), nor does every version ask it.
        try:
            return question(nvml.nvmlDeviceGetHandleByIndex(index))
        except (nvml.NVMLError, AttributeError):
            return None

    name = ask(lambda gpu: nvml.nvmlDeviceGetName(gpu))
    return {
        "index": index,
        "name": name.decode(errors="replace") if isinstance(name, bytes) else name,
        "busy": ask(lambda gpu: nvml.nvmlDeviceGetUtilizationRates(gpu).gpu),
        "power": ask(lambda gpu: nvml.nvmlDeviceGetPowerUsage(gpu)),
        "power_limit": ask(lambda gpu: nvml.nvmlDeviceGetEnforcedPowerLimit(gpu)),
        "memory_used": ask(lambda gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).used),
        "memory_total": ask(lambda gpu: nvml.nvmlDeviceGetMemoryInfo(gpu).total),
        "pids": ask(
            lambda gpu: [one.pid for one in nvml.nvmlDeviceGetComputeRunningProcesses(gpu)]
        ),
    }


if __name__ == "__main__":
    raise SystemExit(main())
