"""Waits, as for a file system, until there is a file `enough` in its folder. Ends with status 0."""

import os
import time

import torch  # noqa: F401

print("waits", flush=True)
end = time.monotonic() + 100
while not os.path.exists("enough") and time.monotonic() < end:
    time.sleep(0.05)
os.unlink("enough")
print("done", flush=True)
