"""vLLM: EngineCore reads a named pipe that nobody opens before it starts a worker; the API server
says "Waiting for 1 local, 0 remote core engine proc(s) to start".

vLLM is a stand-in, written from its source. This file is the model with code of its own.
"""

import os


def engine():
    with open(os.environ["FIFO"]) as file:
        file.read()


# /// case
# command = "python -m vllm.entrypoints.openai.api_server --model train.py -tp 2 --port $PORT"
# world = "unopened_fifo"
# packages = ["vllm"]
# needs = ["zmq", "setproctitle"]
# culprits = [[0], [-1]]
# steps = ["engine_ready", "engine", "script"]
# after = ["", "torch imported"]
# own_code = true
# calls = ['wait_for_engine_startup|open|engine']
# causes = ["pipe-no-writer"]
# says = ["EngineCore", "/feed"]
# ///
