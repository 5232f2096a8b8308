"""Another user of the machine: tries, until its parent ends it, whatever it can of what is ours in
the folders argv[1:], and says each thing that it could do.
"""

import os
import socket
import sys
import time

done = set()


def say(*what):
    if what not in done:
        done.add(what)
        print(*what, flush=True)


def attempt(what, path, do):
    try:
        do()
    except OSError:
        return
    say(what, path)


def connect(path):
    with socket.socket(socket.AF_UNIX) as one:
        one.connect(path)


say("ready")
while True:
    for base in sys.argv[1:]:
        for folder, names, files in os.walk(base, onerror=lambda error: None):
            for name in names + files:
                path = os.path.join(folder, name)
                if "hangbisect" not in path and "/run" not in path:
                    continue
                attempt("read", path, lambda path=path: os.close(os.open(path, os.O_RDONLY)))
                attempt("wrote", path, lambda path=path: os.close(os.open(path, os.O_WRONLY)))
                attempt("made in", path, lambda path=path: os.mkdir(f"{path}/mine"))
                attempt("connected", path, lambda path=path: connect(path))
                attempt("removed", path, lambda path=path: os.unlink(path))
    time.sleep(0.005)
