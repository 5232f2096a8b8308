"""A router, an engine and a postprocessor hand on requests by three bounded queues in a ring: what
is too long goes round once more. All three queues are full, and each waits to put.

No two of them wait for each other alone: router for engine, engine for postprocessor, that for
the router.
"""

import argparse
import multiprocessing
from multiprocessing.queues import Queue

import setproctitle

spawn = multiprocessing.get_context("spawn")
Request = tuple[int, int]  # number, tokens that are left


def run_engine(requests: "Queue[Request]", tokens: "Queue[Request]") -> None:
    setproctitle.setproctitle("textgen::engine")
    while True:
        number, left = requests.get()
        tokens.put((number, left - 16))


def run_postprocessor(tokens: "Queue[Request]", again: "Queue[Request]") -> None:
    setproctitle.setproctitle("textgen::postprocessor")
    while True:
        again.put(tokens.get())


class Router:
    def __init__(self, size: int) -> None:
        self.requests: Queue[Request] = spawn.Queue(size)
        self.tokens: Queue[Request] = spawn.Queue(size)
        self.again: Queue[Request] = spawn.Queue(size)
        spawn.Process(target=run_engine, args=(self.requests, self.tokens)).start()
        spawn.Process(target=run_postprocessor, args=(self.tokens, self.again)).start()

    def submit(self, prompts: int) -> None:
        for number in range(prompts):
            self.requests.put((number, 64))

    def drain(self, prompts: int) -> None:
        done = 0
        while done < prompts:
            number, left = self.again.get()
            if left > 0:
                self.requests.put((number, left))
            else:
                done += 1


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--prompts", type=int, required=True)
    args = parser.parse_args()
    router = Router(4)
    router.submit(args.prompts)
    router.drain(args.prompts)
    print("all prompts are done", flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --prompts 64"
# needs = ["setproctitle"]
# culprits = [[0], [-1]]
# steps = ["script", "arguments"]
# after = ["", "Args parsed"]
# own_code = true
# calls = ['put', 'acquire', 'submit', 'main', 'run_engine', 'run_postprocessor']
# causes = ["full-queues-both-ways", "deadlock", "queue-of-another-full"]
# says = ['full|put|queue']
# ///
