"""vLLM: Worker_TP1 runs a program that converts its weights, and that waits for the lock of the
folder of converted weights, which a process outside has; Worker_TP0 has its weights and waits.

vLLM is a stand-in, written from its source. This file is the model with code of its own.
"""

import subprocess
import sys


def profile(rank):
    if rank == 1:
        subprocess.run([sys.executable, "convert.py"], check=True, stdout=subprocess.PIPE)


# /// case
# command = "python -m vllm.entrypoints.openai.api_server --model train.py -tp 2 --port $PORT"
# world = "held_lock"
# packages = ["vllm"]
# needs = ["zmq", "setproctitle"]
# culprits = [[1]]
# waiting = [0]
# steps = ["memory", "script"]
# after = ["Model loaded", "Process group ready", ""]
# own_code = true
# calls = ['determine_available_memory|profile|subprocess|run|communicate|convert|flock']
# causes = ["file-lock-held", "child-program", "child-process-stuck"]
# says = ["Worker_TP1", 'cache\.lock|convert\.py']
# [files]
# "convert.py" = '''
# """Converts weights, one process at a time."""
# import fcntl
# import os
#
#
# def take_turn(path):
#     with open(path, "w") as lock:
#         fcntl.flock(lock, fcntl.LOCK_EX)
#
#
# take_turn(os.environ["LOCK"])
# '''
# ///
