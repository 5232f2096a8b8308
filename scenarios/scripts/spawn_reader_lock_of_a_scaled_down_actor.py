"""A learner scales its three actors down to two: it terminates one that waits for work in get(),
and with that the lock of the queue's readers is gone; the other two wait for that lock ever after.

The learner puts work and waits for answers. The actor that ended was ended on purpose.
"""

import multiprocessing
import time
from typing import Any

forkserver = multiprocessing.get_context("forkserver")


def act(number: int, work: Any, answers: Any) -> None:
    time.sleep(0.5 + number)  # its environment: actor 0 comes first to the queue
    while True:
        seed = work.get()
        answers.put((number, seed * 2))


def learn(work: Any, answers: Any, rounds: int, actors: int) -> None:
    for round_number in range(rounds):
        for seed in range(actors):
            work.put(seed)
        total = sum(answers.get()[1] for _ in range(actors))
        print(f"round {round_number}: {total}", flush=True)


def main() -> None:
    work, answers = forkserver.Queue(), forkserver.Queue()
    actors = [
        forkserver.Process(target=act, args=(number, work, answers), name=f"actor-{number}")
        for number in range(3)
    ]
    for one in actors:
        one.start()
    time.sleep(3)
    print("two actors are enough", flush=True)
    actors[0].terminate()
    actors[0].join()
    learn(work, answers, 10, 2)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[1, 2], [0, 1], [0], [-1]]
# steps = ["script", "arguments", "ranks", "training"]
# after = ["", "Ranks started"]
# own_code = true
# ends = true
# calls = ['get', 'acquire', '__enter__', 'act', 'learn', 'recv', '^$']
# causes = ["dead-owner", "child-died", "worker-dead", "killed-from-outside"]
# says = ['SIGTERM|signal 15|actor-0|ended|holder|lock|Queue']
# ///
