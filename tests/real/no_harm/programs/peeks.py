"""Says whose its temporary folder is, and whether its start took long."""

import os
import tempfile
import time

began = time.monotonic()

import torch  # noqa: E402

torch.optim.SGD().step()
soon = time.monotonic() - began < 4.0  # what is waited for in vain takes five and more
found = os.stat(tempfile.gettempdir())
mine = found.st_uid == os.getuid() and not found.st_mode & 0o022
print("safe" if mine or found.st_mode & 0o1000 else f"open: {found}", flush=True)
print("soon" if soon else "late", flush=True)
time.sleep(1.5)
print("over", flush=True)
