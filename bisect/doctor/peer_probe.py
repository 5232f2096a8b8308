"""Print which pairs of GPUs have direct access to each other, as JSON.

A program of its own, run by `devices.py` with a time limit: a driver that does not answer holds
whoever asked it in the kernel. It imports nothing of ours.
"""

from __future__ import annotations

import json
from typing import Any

_READS = 0  # NVML_P2P_CAPS_INDEX_READ, which is a tuple in nvidia-ml-py 12 and 13


def main() -> int:
    try:
        import pynvml

        pynvml.nvmlInit()
        print(json.dumps(_told(pynvml)))
    except Exception as error:
        print(json.dumps({"missing": str(error) or type(error).__name__}))
    return 0


def _told(nvml: Any) -> dict[str, Any]:
    gpus = [nvml.nvmlDeviceGetHandleByIndex(i) for i in range(nvml.nvmlDeviceGetCount())]
    pairs = []
    for a, one in enumerate(gpus):
        for b, other in enumerate(gpus):
            if a < b:
                try:
                    status = nvml.nvmlDeviceGetP2PStatus(one, other, _READS)
                except (nvml.NVMLError, AttributeError):
                    status = None
                pairs.append([a, b, status])
    return {"pairs": pairs}


if __name__ == "__main__":
    raise SystemExit(main())
