"""Is ended by a signal, as the kernel ends who takes too much memory."""

import os
import signal

import safetensors

print(safetensors.__name__, flush=True)
os.kill(os.getpid(), signal.SIGKILL)

# /// case
# command = "python train.py"
# outcome = "ok"
# status = 137
# ///
