"""Ends in the way argv[1]."""

import atexit
import os
import sys
import threading

import torch  # noqa: F401

print(sys.argv[1], flush=True)
if sys.argv[1] == "raises":
    raise ValueError("its own")
if sys.argv[1] == "exit_hook":
    atexit.register(lambda: os._exit(9))
if sys.argv[1] == "thread_raises":
    thread = threading.Thread(target=lambda: 1 / 0)
    thread.start()
    thread.join()
if sys.argv[1] == "hook_raises":
    sys.excepthook = lambda *error: print("its own hook", error[0].__name__)
    raise KeyError("its own")
if sys.argv[1] == "none":
    raise SystemExit
if sys.argv[1] == "text":
    raise SystemExit("a text on standard error")
