"""vLLM: Worker_TP1 waits for the lock of a download, which a process outside has; the API server
waits for its engine and says "Waiting for 1 local, 0 remote core engine proc(s) to start".

vLLM is a stand-in, written from its source. This file is the model with code of its own.
"""

import os


def weights(rank):
    return os.environ["LOCK"] if rank == 1 else None


# /// case
# command = "python -m vllm.entrypoints.openai.api_server --model train.py -tp 2 --port $PORT"
# world = "held_lock"
# packages = ["vllm"]
# needs = ["zmq", "setproctitle"]
# culprits = [[1]]
# waiting = [0]
# steps = ["load_model", "model", "script"]
# after = ["Process group ready", "Device ready", ""]
# own_code = true
# calls = ['load_model|load_weights|download_weights_from_hf|acquire']
# causes = ["file-lock-held"]
# says = ["Worker_TP1", "cache.lock"]
# ///
