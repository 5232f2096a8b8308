"""Actors and a learner: the actors' queue is full, and the learner takes nothing out of it before
both actors have said that their first episode is over.

The actors say so after the last of an episode's steps, of which the queue holds fewer. Each waits
for the other; no process has a rank's number. The learner is to take while it waits: the actors
do what was agreed.
"""

import multiprocessing
from multiprocessing.queues import Queue
from multiprocessing.synchronize import Event

STEPS = 40
ACTORS = 2


def act(number: int, steps: "Queue[tuple[int, int]]", over: Event) -> None:
    for step in range(STEPS):
        steps.put((number, step))
    over.set()
    steps.put((number, -1))


def learn(steps: "Queue[tuple[int, int]]", overs: list[Event]) -> None:
    for over in overs:
        over.wait()
    seen = 0
    while seen < ACTORS * (STEPS + 1):
        steps.get()
        seen += 1
    print("learned", flush=True)


def main() -> None:
    context = multiprocessing.get_context("spawn")
    steps, overs = context.Queue(maxsize=16), [context.Event() for _ in range(ACTORS)]
    processes = [
        context.Process(target=act, args=(number, steps, over), name=f"actor-{number}")
        for number, over in enumerate(overs)
    ]
    processes.append(context.Process(target=learn, args=(steps, overs), name="learner"))
    for one in processes:
        one.start()
    for one in processes:
        one.join()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[0], [-1]]
# steps = ["script", "import_torch", "arguments"]
# after = [""]
# own_code = true
# calls = ['learn', 'wait', 'act', 'put', 'acquire']
# causes = ["deadlock", "child-process-stuck", "unknown"]
# says = ['learn|over\.wait|Event\.wait']
# ///
