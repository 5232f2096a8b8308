"""vLLM: Worker_TP1 asks a server that does not answer while it captures CUDA graphs (for a kernel
whose tuned sizes it looks up there, say); EngineCore reads the ring of answers. With
--enforce-eager nothing is captured.

vLLM is a stand-in, written from its source. This file is the model with code of its own.
"""

import os
import urllib.request


def capture(rank):
    if rank == 1:
        with urllib.request.urlopen(os.environ["SERVICE"]) as answer:
            answer.read()


# /// case
# command = "python -m vllm.entrypoints.openai.api_server --model train.py -tp 2 --port $PORT"
# world = "silent_service"
# packages = ["vllm"]
# needs = ["zmq", "setproctitle"]
# culprits = [[1]]
# waiting = [0]
# steps = ["capture_graphs", "warm_up", "first_collective", "script"]
# after = [
# "KV cache ready", "First all_reduce done",
# "Memory measured", "Process group ready", "Model loaded", ""
# ]
# own_code = true
# calls = ['compile_or_warm_up_model|urlopen|capture']
# causes = ["endpoint-silent"]
# says = ["Worker_TP1"]
# ///
