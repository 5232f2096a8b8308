"""A master forks three workers and reads from the ready pipe of each; worker 1 ends by an error,
the master's handler of SIGCHLD takes its status, and worker 2, forked after it, has its pipe
open.

So the pipe never ends: the master reads from it for ever. Workers 0 and 2 are ready and wait.
"""

import argparse
import os
import signal
import time

import setproctitle

STATUSES: dict[int, int] = {}


def take_statuses(*_: object) -> None:
    try:
        while (found := os.waitpid(-1, os.WNOHANG))[0]:
            STATUSES[found[0]] = found[1]
    except ChildProcessError:
        pass


def load(number: int) -> dict[str, int]:
    time.sleep(1 + number)
    tensors = {f"layers.{layer}": layer for layer in range(24)}
    if number == 1:
        del tensors["layers.7"]
    return {name: tensors[name] for name in (f"layers.{layer}" for layer in range(24))}


def serve(number: int, ready: int) -> None:
    setproctitle.setproctitle(f"kvserve: worker {number}")
    weights = load(number)
    os.write(ready, b"%d" % len(weights))
    while True:
        signal.pause()  # for its first request


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=3)
    args = parser.parse_args()
    setproctitle.setproctitle("kvserve: master")
    signal.signal(signal.SIGCHLD, take_statuses)
    pipes = []
    for number in range(args.workers):
        readable, writable = os.pipe()
        pipes.append((readable, writable))
        if not os.fork():
            serve(number, writable)
    for _, writable in pipes:
        os.close(writable)
    for number, (readable, _) in enumerate(pipes):
        print(f"worker {number}: {os.read(readable, 8).decode()} tensors", flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --workers 3"
# needs = ["setproctitle"]
# culprits = [[0], [-1]]
# steps = ["script", "arguments"]
# after = ["Args parsed", ""]
# own_code = true
# ends = true
# calls = ['read', 'main', '^$', 'serve', 'pause']
# causes = ["pipe-writer-gone", "child-died", "dead-producer", "child-process-stuck", "signal-wait"]
# says = ['pipe|worker']
# ///
