"""Ray: a store of weights is an actor of three threads; whoever pulls a version waits in it, on a
condition, until that was pushed. Three pulls take all its threads, and the push stays in its queue.

The third learner, which has pushed, and the driver wait in ray.get.
"""

import threading

import ray


@ray.remote(max_concurrency=3)
class WeightStore:
    def __init__(self) -> None:
        self.changed, self.versions = threading.Condition(), {}

    def pull(self, version: int) -> list[float]:
        with self.changed:
            self.changed.wait_for(lambda: version in self.versions)
            return self.versions[version]

    def push(self, version: int, weights: list[float]) -> None:
        with self.changed:
            self.versions[version] = weights
            self.changed.notify_all()


@ray.remote(num_cpus=0.5)
class Player:
    def __init__(self, store: ray.actor.ActorHandle) -> None:
        self.store = store

    def play(self, version: int) -> float:
        return sum(ray.get(self.store.pull.remote(version)))


@ray.remote(num_cpus=0.5)
class Learner:
    def __init__(self, store: ray.actor.ActorHandle) -> None:
        self.store = store

    def learn(self, version: int) -> int:
        weights = [version / 10] * 8
        ray.get(self.store.push.remote(version, weights))
        return version


def main() -> None:
    ray.init(num_cpus=4, include_dashboard=False)
    store = WeightStore.remote()
    players = [Player.remote(store) for _ in range(3)]
    playing = [player.play.remote(1) for player in players]
    ray.wait(playing, timeout=6)  # until all of them have asked
    learner = Learner.remote(store)
    learnt = learner.learn.remote(1)
    print("played:", ray.get(playing), "version", ray.get(learnt), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# needs = ["ray"]
# culprits = [[0], [-1]]
# steps = ["ray_get", "script"]
# after = ["Ray started", "Actor asked for", "Answer of Ray there", ""]
# own_code = true
# calls = ['ray\.get', 'pull', 'learn', 'wait', 'push']
# says = ['WeightStore|pull|push']
# ///
