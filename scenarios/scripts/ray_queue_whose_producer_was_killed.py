"""Ray: an environment fills a queue of Ray's for the learner, and is killed in its fourth step, as
where memory runs out; the learner waits for the next item, and the driver for the learner.

Nobody asks how the environment's call ended: its reference lies in a list until all is over.
"""

import os
import signal

import ray
from ray.util.queue import Queue


@ray.remote(max_restarts=0)
class Environment:
    def __init__(self, experiences: Queue) -> None:
        self.experiences, self.kept = experiences, []

    def step(self, number: int) -> None:
        self.kept.append(bytearray(1 << 20))
        if number == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        self.experiences.put({"number": number, "size": len(self.kept)})

    def run(self, steps: int) -> None:
        for number in range(steps):
            self.step(number)


@ray.remote
class Learner:
    def __init__(self, experiences: Queue) -> None:
        self.experiences = experiences

    def learn(self, steps: int) -> int:
        return sum(self.experiences.get()["size"] for _ in range(steps))


def main() -> None:
    ray.init(num_cpus=4, include_dashboard=False)
    experiences = Queue(maxsize=8)
    environment, learner = Environment.remote(experiences), Learner.remote(experiences)
    running = [environment.run.remote(10)]
    print(ray.get(learner.learn.remote(10)), flush=True)
    ray.get(running)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# needs = ["ray"]
# culprits = [[-1], [0]]
# steps = ["ray_get", "script", "ray_actor"]
# after = ["Answer of Ray there", "Ray started", "Actor asked for", ""]
# own_code = true
# ends = true
# calls = ['ray\.get', 'learn', 'get', '^$']
# causes = ["ray-actor-died", "killed-from-outside", "worker-dead", "ray-task"]
# says = ['died|killed|SIGKILL|signal 9|ended']
# ///
