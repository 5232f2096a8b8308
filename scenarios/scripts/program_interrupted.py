"""Is interrupted, as by Ctrl-C, and does not catch it."""

import safetensors

print(safetensors.__name__, flush=True)
raise KeyboardInterrupt

# /// case
# command = "python train.py"
# outcome = "ok"
# status = 130
# ///
