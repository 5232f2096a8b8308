"""Ray: a coordinator asks a worker for a rollout and waits; in the middle of it the worker asks the
coordinator for the next prompt and waits. Both do one thing at a time.

Each waits in ray.get for a call that the other one has in its queue. The driver waits for the
coordinator; a second worker has done its part and is idle.
"""

import ray


@ray.remote
class Worker:
    def __init__(self, number: int) -> None:
        self.number, self.done = number, 0

    def warm_up(self) -> int:
        self.done += 1
        return self.number

    def rollout(self, coordinator: ray.actor.ActorHandle, length: int) -> list[str]:
        texts = []
        for _ in range(length):
            prompt = ray.get(coordinator.next_prompt.remote())
            texts.append(f"{prompt} by {self.number}")
        return texts


@ray.remote
class Coordinator:
    def __init__(self, workers: list[ray.actor.ActorHandle]) -> None:
        self.workers, self.asked = workers, 0

    def next_prompt(self) -> str:
        self.asked += 1
        return f"prompt {self.asked}"

    def collect(self, length: int) -> list[str]:
        me = ray.get_runtime_context().current_actor
        return list(ray.get(self.workers[0].rollout.remote(me, length)))


def main() -> None:
    ray.init(num_cpus=4, include_dashboard=False)
    workers = [Worker.remote(number) for number in range(2)]
    print(ray.get([one.warm_up.remote() for one in workers]), flush=True)
    coordinator = Coordinator.remote(workers)
    print(ray.get(coordinator.collect.remote(3)), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[-1], [0]]
# steps = ["ray_get", "script"]
# after = ["Ray started", "Answer of Ray there", ""]
# own_code = true
# calls = ['ray\.get', 'collect', 'rollout', 'next_prompt']
# causes = ["deadlock", "ray-task"]
# says = ['Worker', 'Coordinator']
# needs = ["ray"]
# ///
