"""Prints each of the signals argv that it gets, and ends once there is a file `enough`."""

import os
import signal
import sys
import time

import torch  # noqa: F401  it makes this a rank

for word in sys.argv[1:]:
    signal.signal(int(word), lambda number, frame: print("got", int(number), flush=True))
print("ready", flush=True)
end = time.monotonic() + 30
while not os.path.exists("enough") and time.monotonic() < end:
    time.sleep(0.02)
if os.path.exists("enough"):
    os.unlink("enough")
