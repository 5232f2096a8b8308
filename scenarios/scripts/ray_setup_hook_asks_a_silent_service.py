"""Ray: the rollout actors have a setup hook of their worker processes, which registers each with an
experiment tracker; the tracker never answers, so no worker process ever becomes ready.

The driver waits in ray.get for the first answer of an actor; the actors' classes were never loaded.
"""

import os
import urllib.request

import ray


def register() -> None:
    service = os.environ["SERVICE"]
    urllib.request.urlopen(f"{service}/runs?pid={os.getpid()}").close()


@ray.remote
class Rollouts:
    def play(self, games: int) -> int:
        return games * 7


def main() -> None:
    hook = {"worker_process_setup_hook": register}
    ray.init(num_cpus=3, include_dashboard=False, runtime_env=hook)
    actors = [Rollouts.remote() for _ in range(2)]
    print(ray.get([actor.play.remote(3) for actor in actors]), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# world = "silent_service"
# needs = ["ray"]
# culprits = [[-1], [0]]
# steps = ["ray_get", "script"]
# after = ["Ray started", ""]
# own_code = true
# calls = ['urlopen', 'register', 'ray\.get']
# causes = ["endpoint-silent"]
# says = ['127\.0\.0\.1:\d+']
# limit = 300
# ///
