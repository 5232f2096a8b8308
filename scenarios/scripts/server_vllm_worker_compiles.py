"""vLLM: Worker_TP1 compiles its kernels, Worker_TP0 finds them in its cache and waits.

vLLM is a stand-in, written from its source. This file is the model with code of its own.
"""

import os
import subprocess
import time


def autotune(rank):
    if rank == 1:
        end = time.monotonic() + float(os.environ["AMOUNT"])
        number = 0
        while time.monotonic() < end:
            number += 1
            lines = (f"template<> struct K<{i}> {{ int a[{i + 1}]; }};" for i in range(3000))
            source = "template<int N> struct K;\n" + "\n".join(lines)
            words = ["c++", "-x", "c++", "-O2", "-c", "-", "-o", f"kernel{number}.o"]
            subprocess.run(words, input=source, text=True, check=True)
    return True


# /// case
# command = """python -m vllm.entrypoints.openai.api_server --model train.py -tp 2 --port $PORT
# --stop-after 3"""
# packages = ["vllm"]
# needs = ["zmq", "setproctitle"]
# outcome = "ok"
# amount = 40
# ///
