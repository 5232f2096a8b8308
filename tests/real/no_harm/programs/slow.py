"""Waits for argv[1] seconds after its imports, as for a file system. Ends with status 0."""

import sys
import time

import torch

print("waits", torch.__version__, flush=True)
time.sleep(float(sys.argv[1]))
print("done", flush=True)
