"""Ends with a status of its own, past what it registered for its end."""

import atexit
import sys

import safetensors

atexit.register(print, "the end of", safetensors.__name__)
sys.exit(3)

# /// case
# command = "python train.py"
# outcome = "ok"
# status = 3
# ///
