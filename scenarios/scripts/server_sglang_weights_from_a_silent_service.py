"""SGLang: scheduler TP1 asks a server that does not answer for its weights; TP0 waits for it in a
barrier, the server for the ready pipe of TP0.

SGLang is a stand-in, written from its source. This file is the model with code of its own.
"""

import os
import urllib.request


def weights(rank):
    if rank == 1:
        with urllib.request.urlopen(os.environ["SERVICE"]) as answer:
            answer.read()


# /// case
# command = "python -m sglang.launch_server --model-path train.py --tp 2 --port $PORT"
# world = "silent_service"
# packages = ["sglang"]
# needs = ["zmq", "setproctitle"]
# culprits = [[1]]
# waiting = [0]
# steps = ["load_model", "model", "script"]
# after = ["Process group ready", "Device ready", ""]
# own_code = true
# calls = ['load_model|urlopen|weights']
# causes = ["endpoint-silent"]
# says = ["scheduler TP1|scheduler_TP1"]
# ///
