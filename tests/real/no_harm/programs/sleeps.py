"""Sleeps for argv[1] seconds, as a rank that waits."""

import sys
import time

import torch  # noqa: F401

print("ready", flush=True)
time.sleep(float(sys.argv[1]))
