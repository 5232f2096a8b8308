"""SGLang: scheduler TP1 is killed before it joins its group, as where memory runs out; the server
reads the ready pipe of TP0, which waits for TP1 in the rendezvous.

SGLang is a stand-in, written from its source. This file is the model with code of its own.
"""

import os
import signal


def init_device(rank):
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)


# /// case
# command = "python -m sglang.launch_server --model-path train.py --tp 2 --port $PORT"
# packages = ["sglang"]
# needs = ["zmq", "setproctitle"]
# culprits = [[1]]
# waiting = [0]
# steps = ["init_device", "process_group", "script"]
# after = ["", "torch imported"]
# own_code = true
# ends = true
# calls = ['init_process_group|init_torch_distributed', '^$']
# says = ['SIGKILL|signal 9']
# ///
