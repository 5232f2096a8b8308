"""vLLM in a script: Worker_TP0 reads a named pipe that nobody opens instead of its weights;
Worker_TP1 is ready and waits for the queue of its engine.

vLLM is a stand-in, written from its source. This file is also the model with code of its own.
"""

import os

from vllm import LLM


def weights(rank):
    if rank == 0:
        with open(os.environ["FIFO"]) as file:
            file.read()


if __name__ == "__main__":
    llm = LLM(__file__, tensor_parallel_size=2)
    print(llm.generate("once upon a time"))

# /// case
# command = "python train.py"
# world = "unopened_fifo"
# packages = ["vllm"]
# needs = ["zmq", "setproctitle"]
# culprits = [[0]]
# waiting = [1]
# steps = ["load_model", "model", "script"]
# after = ["Process group ready", "Device ready", ""]
# own_code = true
# calls = ['load_model|open|weights']
# causes = ["pipe-no-writer"]
# says = ["Worker_TP0", "/feed"]
# ///
