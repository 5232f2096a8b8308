"""vLLM: the API server wants the lock of a cache for its chat template, once its engine is ready
and all workers wait for what is asked of them; another program of this user has the lock.

vLLM is a stand-in, written from its source. This file is the model with code of its own.
"""

import fcntl
import os


def chat_template():
    with open(os.environ["LOCK"], "w") as cache:
        fcntl.flock(cache, fcntl.LOCK_EX)


# /// case
# command = "python -m vllm.entrypoints.openai.api_server --model train.py -tp 2 --port $PORT"
# world = "held_lock"
# packages = ["vllm"]
# needs = ["zmq", "setproctitle"]
# culprits = [[-1]]
# waiting = [0, 1]
# steps = ["script", "engine_ready"]
# after = ["Warmed up", "Worker loaded", "Engine ready", ""]
# own_code = true
# calls = ['flock|chat_template|run_server_worker']
# causes = ["file-lock-held"]
# says = ["API server", "cache.lock"]
# ///
