"""Waits argv[1] seconds for a word of a child of its own, in a read that nothing interrupts."""

import os
import sys
import time

import torch  # noqa: F401

ours, theirs = os.pipe()
if not os.fork():
    os.close(ours)
    time.sleep(float(sys.argv[1]))
    os.write(theirs, b"word")
    os._exit(0)
os.close(theirs)
print("waits", flush=True)
print("done", os.read(ours, 10), flush=True)
