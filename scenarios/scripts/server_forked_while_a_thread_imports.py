"""A server forks its two workers while a thread of it imports the plugin for pictures, to be ready
early: the copy of that thread's import lock stays locked in each worker for ever.

Worker 0 serves text and imports nothing; worker 1 imports the plugin at its start and waits for the
lock of that module, whose owner is a thread that its process has not. The master waits until both
have written that they are ready.
"""

import argparse
import importlib
import os
import threading
import time

import setproctitle


def warm_up() -> None:
    importlib.import_module("picture_plugin")


def serve(number: int, ready: int) -> None:
    setproctitle.setproctitle(f"pictureserve: worker {number}")
    if number == 1:
        plugin = importlib.import_module("picture_plugin")
        plugin.prepare()
    os.write(ready, b"%d" % number)
    while True:
        time.sleep(3600)  # for its first request


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.parse_args()
    setproctitle.setproctitle("pictureserve: master")
    threading.Thread(target=warm_up, name="warm-up").start()
    time.sleep(0.5)
    readable, writable = os.pipe()
    for number in range(2):
        if not os.fork():
            serve(number, writable)
    os.close(writable)
    seen = b""
    while len(seen) < 2:
        seen += os.read(readable, 1)
        print(f"{len(seen)} of 2 workers are ready", flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# needs = ["setproctitle"]
# culprits = [[-1], [0]]
# steps = ["script", "arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['import', 'serve', 'acquire', '_find_and_load', 'read', 'main', '^$']
# causes = ["thread-lost-by-fork", "lock-after-fork"]
# says = ['fork|worker 1']
# [files]
# "picture_plugin.py" = '''
# """Reads its tables when it is imported."""
# import time
#
# time.sleep(3)
#
#
# def prepare():
#     pass
# '''
# ///
