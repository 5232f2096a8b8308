"""Gives its steps a time limit of its own, and takes too long. Nobody reads standard error so long:
what is written there waits.
"""

import contextlib
import os
import signal
import sys
import threading
import time

import torch


class Late(Exception):
    pass


def late(number, frame):
    raise Late


signal.signal(signal.SIGALRM, late)
signal.signal(signal.SIGUSR1, late)
os.set_blocking(2, False)
with contextlib.suppress(BlockingIOError):
    while True:
        os.write(2, b"." * 64)
os.set_blocking(2, True)
try:
    if sys.argv[1] == "alarm":
        signal.alarm(1)
    elif sys.argv[1] == "itimer":
        signal.setitimer(signal.ITIMER_REAL, 0.5)
    else:
        main = threading.main_thread().ident
        threading.Timer(0.5, lambda: signal.pthread_kill(main, signal.SIGUSR1)).start()
    end = time.monotonic() + 4
    torch.optim.SGD().step()
    while time.monotonic() < end:
        torch.load("x" * 100)
        torch.optim.SGD().step()
    print("no exception", flush=True)
except Late:
    print("Late raised", flush=True)
