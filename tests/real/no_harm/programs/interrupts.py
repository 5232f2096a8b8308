"""Raises argv[1] exceptions out of a signal's handler, one by one, and counts those that come."""

import signal
import sys
import time

import torch


class Late(Exception):
    pass


def late(number, frame):
    raise Late


signal.signal(signal.SIGALRM, late)
count, wanted = 0, int(sys.argv[1])
for number in range(wanted):
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.001 + number % 7 * 0.0003)
        for _ in range(3_000):
            torch.load(1)
        time.sleep(0.1)  # so fast
    except Late:
        count += 1
    signal.setitimer(signal.ITIMER_REAL, 0)
print(count, "of", wanted)
