"""vLLM: EngineCore reads a named pipe that nobody opens while both workers are ready and wait for
what it asks of them.

vLLM is a stand-in, written from its source. This file is the model with code of its own.
"""

import os


def kv_caches():
    with open(os.environ["FIFO"]) as file:
        file.read()


# /// case
# command = "python -m vllm.entrypoints.openai.api_server --model train.py -tp 2 --port $PORT"
# world = "unopened_fifo"
# packages = ["vllm"]
# needs = ["zmq", "setproctitle"]
# culprits = [[-1]]
# waiting = [0, 1]
# steps = ["engine_ready", "engine", "script"]
# after = ["", "torch imported", "Worker loaded", "Model loaded"]
# own_code = true
# calls = ['open|engine|kv_caches']
# causes = ["pipe-no-writer"]
# says = ["EngineCore", "/feed"]
# ///
