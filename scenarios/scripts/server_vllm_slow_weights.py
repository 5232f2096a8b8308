"""vLLM: Worker_TP1 gets its weights slowly, a byte after the other; all others wait for it.

vLLM is a stand-in, written from its source. This file is the model with code of its own.
"""

import os
import urllib.request


def weights(rank):
    if rank == 1:
        with urllib.request.urlopen(os.environ["SERVICE"]) as answer:
            answer.read()


# /// case
# command = """python -m vllm.entrypoints.openai.api_server --model train.py -tp 2 --port $PORT
# --stop-after 3"""
# world = "trickling_service"
# packages = ["vllm"]
# needs = ["zmq", "setproctitle"]
# outcome = "ok"
# amount = 40
# ///
