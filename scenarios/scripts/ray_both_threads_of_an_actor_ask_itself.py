"""Ray: a retriever is an actor of two threads; for each search it asks itself, by its own handle,
for an embedding. Two searches at once have both threads, and neither embedding ever begins.

Two rollout actors wait in ray.get for their searches, the driver for them.
"""

import ray


@ray.remote(num_cpus=0, max_concurrency=2)
class Retriever:
    def __init__(self) -> None:
        self.me = ray.get_runtime_context().current_actor

    def embed(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]

    def search(self, text: str) -> int:
        vector = ray.get(self.me.embed.remote(text))
        return sum(vector)


@ray.remote(num_cpus=0)
class Rollout:
    def __init__(self, retriever: "ray.actor.ActorHandle[Retriever]") -> None:
        self.retriever = retriever

    def play(self, game: int) -> int:
        total = 0
        for turn in range(200):
            total += ray.get(self.retriever.search.remote(f"game {game}, turn {turn}"))
        return total


def main() -> None:
    ray.init(num_cpus=2, include_dashboard=False)
    retriever = Retriever.remote()
    players = [Rollout.remote(retriever) for _ in range(4)]
    print(ray.get([player.play.remote(game) for game, player in enumerate(players)]), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# needs = ["ray"]
# culprits = [[0], [-1]]
# steps = ["ray_get", "script"]
# after = ["Ray started", "Actor asked for", "Answer of Ray there", ""]
# own_code = true
# calls = ['ray\.get', 'search', 'play']
# causes = ["ray-asks-itself", "pool-waits-for-itself", "deadlock", "ray-task"]
# says = ['Retriever']
# ///
