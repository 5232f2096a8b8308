"""Ray: a buffer that is full asks itself, by the handle that its name gives, how large it is, and
waits for the answer in ray.get; it does one call at a time, so that call never begins.

Two rollouts wait in ray.get for the buffer, the driver for the first of them.
"""

import ray


def current_size() -> int:
    """Return how many samples the buffer of this job has, for whoever asks."""
    return int(ray.get(ray.get_actor("buffer").size.remote()))


@ray.remote
class ReplayBuffer:
    def __init__(self, limit: int) -> None:
        self.limit, self.rows = limit, [0.0]

    def size(self) -> int:
        return len(self.rows)

    def evict(self) -> None:
        keep = current_size() // 2
        self.rows = self.rows[-keep:]

    def add(self, rows: list[float]) -> int:
        if len(self.rows) + len(rows) > self.limit:
            self.evict()
        self.rows += rows
        return len(self.rows)


@ray.remote
class Rollout:
    def __init__(self, number: int) -> None:
        self.number, self.buffer = number, ray.get_actor("buffer")

    def play(self, episodes: int) -> int:
        added = 0
        for episode in range(episodes):
            rows = [float(episode * self.number)] * 16
            added = ray.get(self.buffer.add.remote(rows))
        return added


def main() -> None:
    ray.init(num_cpus=3, include_dashboard=False)
    buffer = ReplayBuffer.options(name="buffer").remote(limit=256)
    print(f"{current_size()} samples", flush=True)
    rollouts = [Rollout.remote(number) for number in range(2)]
    print(ray.get([one.play.remote(20) for one in rollouts]), flush=True)
    del buffer


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[-1], [0]]
# steps = ["ray_get", "script"]
# after = ["Ray started", ""]
# own_code = true
# calls = ['ray\.get', 'current_size', 'evict', 'add']
# causes = ["ray-asks-itself", "deadlock", "self-deadlock", "server-asks-itself"]
# says = ['ReplayBuffer', 'current_size|evict|add|itself']
# needs = ["ray"]
# ///
