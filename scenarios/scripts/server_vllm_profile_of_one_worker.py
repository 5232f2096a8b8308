"""vLLM: Worker_TP1 asks a server that does not answer while it measures its memory; EngineCore
reads the ring of answers ("No available shared memory broadcast block found in 60 seconds").

vLLM is a stand-in, written from its source. This file is the model with code of its own.
"""

import os
import urllib.request


def profile(rank):
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
# steps = ["memory", "script"]
# after = ["Model loaded", "Process group ready", ""]
# own_code = true
# calls = ['determine_available_memory|urlopen|profile']
# causes = ["endpoint-silent"]
# says = ["Worker_TP1"]
# ///
