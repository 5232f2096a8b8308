"""SGLang: scheduler TP1 calls a native library while it configures itself, which waits for a
semaphore that nobody posts (a driver's); TP0 waits for it in the rendezvous of their group.

SGLang is a stand-in, written from its source. This file is the model with code of its own.
"""

import ctypes


def configure(rank):
    if rank == 1:
        library = ctypes.CDLL(None)
        semaphore = ctypes.create_string_buffer(32)
        library.sem_init(semaphore, 0, 0)
        library.sem_wait(semaphore)


# /// case
# command = "python -m sglang.launch_server --model-path train.py --tp 2 --port $PORT"
# packages = ["sglang"]
# needs = ["zmq", "setproctitle"]
# culprits = [[1]]
# waiting = [0]
# steps = ["init_device", "process_group", "script", "scheduler_ready"]
# after = ["", "torch imported"]
# own_code = true
# calls = ['configure', 'sem_wait', 'remote_code', 'run_scheduler_process']
# says = ['TP1']
# ///
