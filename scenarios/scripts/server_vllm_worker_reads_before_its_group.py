"""vLLM: Worker_TP1 reads a named pipe that nobody opens before it joins its process group, in
which Worker_TP0 waits for it.

vLLM is a stand-in, written from its source. This file is the model with code of its own.
"""

import os


def init_device(rank):
    if rank == 1:
        with open(os.environ["FIFO"]) as file:
            file.read()


# /// case
# command = "python -m vllm.entrypoints.openai.api_server --model train.py -tp 2 --port $PORT"
# world = "unopened_fifo"
# packages = ["vllm"]
# needs = ["zmq", "setproctitle"]
# culprits = [[1]]
# waiting = [0]
# steps = ["init_device", "process_group", "script"]
# after = ["", "torch imported"]
# own_code = true
# calls = ['init_device|open']
# causes = ["pipe-no-writer"]
# says = ["Worker_TP1", "/feed"]
# ///
