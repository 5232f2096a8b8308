"""Trains for argv[1] seconds: a step now and then. Says so at the end."""

import sys
import time

import torch

end = time.monotonic() + float(sys.argv[1])
optimizer = torch.optim.SGD()
while time.monotonic() < end:
    time.sleep(0.1)
    optimizer.step()
sys.stdout.write("script done\n")  # in one write: there are others on the same output
sys.stdout.flush()
