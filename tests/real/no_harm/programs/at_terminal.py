"""Waits for argv[2] signals of the name argv[1], or asks at the terminal (`asks`)."""

import getpass
import os
import signal
import sys
import time

import torch  # noqa: F401

if sys.argv[1] == "asks":
    print("got", input("name? "))
    print("got", getpass.getpass("password? "))
    raise SystemExit
got = 0
SIZE = os.get_terminal_size() if sys.argv[1] == "WINCH" else None


def count(number, frame):
    global got, SIZE
    if number == signal.SIGWINCH:
        # The kernel sends it before it has changed the size (pty_resize, pty.c).
        end = time.monotonic() + 2
        while os.get_terminal_size() == SIZE:
            if time.monotonic() > end:
                return  # nothing has changed
            time.sleep(0.01)
        SIZE = os.get_terminal_size()
    got += 1
    print("got", got, *(os.get_terminal_size() if number == signal.SIGWINCH else ()), flush=True)


signal.signal(getattr(signal, "SIG" + sys.argv[1]), count)
print("ready", flush=True)
end = time.monotonic() + 40
while got < int(sys.argv[2]) and time.monotonic() < end:
    sum(range(10000))
    time.sleep(0.001)
time.sleep(0.3)
