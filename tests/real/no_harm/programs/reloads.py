"""Reloads at a signal, argv[2] or SIGHUP, and ends after argv[1] reloads."""

import signal
import sys
import time

import torch  # noqa: F401

done = 0


def reload(number, frame):
    global done
    done += 1
    print("reload", done, flush=True)


signal.signal(int(sys.argv[2]) if len(sys.argv) > 2 else signal.SIGHUP, reload)
print("ready", flush=True)
end = time.monotonic() + 60
while done < int(sys.argv[1]) and time.monotonic() < end:
    time.sleep(0.02)
print("after", done, "signals", flush=True)
