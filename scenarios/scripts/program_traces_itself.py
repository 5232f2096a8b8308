"""Ranks that trace, profile, audit and count themselves, have own hooks, and end with an error."""

import os
import subprocess
import sys

WORKER = r"""
import atexit, faulthandler, gc, os, signal, sys, threading, time, warnings

seen = {"call": 0, "audit": 0, "profile": 0}
tracked = []


def trace(frame, event, argument):
    if frame.f_code.co_filename == __file__:
        seen["call"] += 1
        return trace
    return None


def profile(frame, event, argument):
    if event == "call" and frame.f_code.co_name == "work":
        seen["profile"] += 1


def hook(kind, value, trace_back):
    print("own excepthook", kind.__name__, value, flush=True)


def unraisable(told):
    print("own unraisablehook", told.exc_type.__name__, flush=True)


def in_thread(told):
    print("own threading hook", told.exc_type.__name__, told.thread.name, flush=True)


sys.settrace(trace)
threading.settrace(trace)
import torch

if hasattr(sys, "monitoring"):
    for number in range(6):
        sys.monitoring.use_tool_id(number, f"own {number}")
print("trace is ours still:", sys.gettrace() is trace, threading.gettrace() is trace)
sys.setprofile(profile)
sys.addaudithook(lambda name, told: name == "own.event" and seen.update(audit=seen["audit"] + 1))
sys.excepthook, sys.unraisablehook, threading.excepthook = hook, unraisable, in_thread
atexit.register(print, "registered first, runs last", flush=True)
log = open(f"faults-{os.environ['RANK']}.txt", "w+")
faulthandler.enable(log)
faulthandler.register(signal.SIGUSR1, log, all_threads=False)
faulthandler.dump_traceback_later(0.3, repeat=True, file=log)
signal.signal(signal.SIGUSR2, lambda number, frame: print("own USR2", flush=True))
signal.signal(signal.SIGTERM, lambda number, frame: print("own TERM", flush=True))


class Odd:
    def __del__(self):
        raise ValueError("in __del__")


def work(turn):
    sys.audit("own.event")
    return torch.ones(3).sum().item() * turn


for turn in range(10):
    work(turn)
    time.sleep(0.1)
for number in (signal.SIGUSR1, signal.SIGUSR2, signal.SIGTERM):
    os.kill(os.getpid(), number)
sys.setprofile(None)
Odd()
thread = threading.Thread(target=lambda: 1 / 0, name="own thread")
thread.start()
thread.join()
faulthandler.cancel_dump_traceback_later()
log.seek(0)
text = log.read()
print(seen["profile"], seen["audit"])
print(text.count("Timeout (") >= 2, text.count("most recent call first") >= 3)
print("trace:", sys.gettrace() is trace, "gc:", gc.get_threshold(), gc.callbacks)
print("hooks:", sys.excepthook is hook, sys.unraisablehook is unraisable)
print("switch:", sys.getswitchinterval(), "recursion:", sys.getrecursionlimit())
raise RuntimeError("the end of a rank")
"""


def main() -> None:
    with open("worker_train.py", "w") as file:
        file.write(WORKER)
    for rank in range(2):
        own = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank)}
        words = [sys.executable, "worker_train.py"]
        done = subprocess.run(words, env=own, stdout=subprocess.PIPE, text=True)
        print(rank, done.returncode, done.stdout, flush=True)
    sys.exit(7)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# outcome = "ok"
# status = 7
# ///
