"""A driver waits in ray.get for an actor of Ray that reads a named pipe which nobody opens.

Neither of them has torch.
"""

import sys

import ray


@ray.remote
class Reader:
    def read(self, path: str) -> str:
        with open(path) as file:
            return file.read()


@ray.remote
class Idle:
    def ready(self) -> bool:
        return True


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False)
    idle = Idle.remote()
    ray.get(idle.ready.remote())
    print(ray.get(Reader.remote().read.remote(sys.argv[1])))

# /// case
# command = "python train.py $FIFO"
# world = "unopened_fifo"
# culprits = [[0], [-1]]
# steps = ["ray_get", "script"]
# after = ["Ray started", ""]
# own_code = true
# calls = ['open', 'ray\.get']
# causes = ["pipe-no-writer"]
# says = ["Reader", "open"]
# needs = ["ray"]
# ///
