"""Prefill and decoding: the prefill worker hands its caches to the decoder by one queue and gets
the free slots back by another one. Both queues are bounded; the decoder returns more slots at
once than its queue takes, and the prefill worker puts more caches than the other one takes.

Each waits in put() until the other one reads. The front waits for the decoder's first token.
"""

import argparse
import multiprocessing
from typing import Any

import setproctitle

spawn = multiprocessing.get_context("spawn")


def prefill(caches: Any, slots: Any, requests: int) -> None:
    setproctitle.setproctitle("textserve::Prefill")
    free = 0
    for request in range(requests):
        if request >= 8 and not free:
            free += slots.get()
        for layer in range(16):
            caches.put((request, layer))


def decode(caches: Any, slots: Any, tokens: Any) -> None:
    setproctitle.setproctitle("textserve::Decode")
    while True:
        request, layer = caches.get()
        for _ in range(12):
            slots.put(1)
        if (request, layer) == (4, 0):
            tokens.put("first")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=32)
    args = parser.parse_args()
    caches, slots, tokens = spawn.Queue(8), spawn.Queue(8), spawn.Queue()
    spawn.Process(target=prefill, args=(caches, slots, args.requests), daemon=True).start()
    spawn.Process(target=decode, args=(caches, slots, tokens), daemon=True).start()
    print(tokens.get(), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --requests 32"
# needs = ["setproctitle"]
# culprits = [[-1], [0]]
# steps = ["script", "arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['put', 'get', 'prefill', 'decode', 'main']
# causes = ["full-queues-both-ways", "deadlock", "child-process-stuck", "queue-of-another-full"]
# says = ['Prefill', 'Decode']
# ///
