"""Trains, then stands still below a watchdog of its own."""

import faulthandler
import time

import torch

faulthandler.dump_traceback_later(3, exit=True)
for _ in range(10):
    torch.load(1)
    time.sleep(0.1)
print("trains", flush=True)
time.sleep(6)
print("watchdog did not fire", flush=True)
