"""Ray: the first worker of a group keeps the address of its store in a named actor, for which the
controller asks every second; the worker names another namespace than the controller's.

Both workers are up and idle; the controller asks again and again for a name that nobody has there.
"""

import os
import socket
import time

import ray


@ray.remote
class RegisterCenter:
    def __init__(self, address: str) -> None:
        self.address = address

    def get_address(self) -> str:
        return self.address


@ray.remote
class Worker:
    def __init__(self, rank: int, prefix: str) -> None:
        self.rank, self.center = rank, None
        if rank == 0:
            with socket.socket() as probe:
                probe.bind(("127.0.0.1", 0))
                port = probe.getsockname()[1]
            named = RegisterCenter.options(
                name=f"{prefix}_register_center",
                namespace=os.environ.get("GROUP_NAMESPACE", prefix),
                lifetime="detached",
            )
            self.center = named.remote(f"127.0.0.1:{port}")

    def join(self, address: str) -> int:
        return self.rank


class WorkerGroup:
    def __init__(self, prefix: str, size: int) -> None:
        self.prefix = prefix
        self.workers = [Worker.remote(rank, prefix) for rank in range(size)]
        address = self._find_center()
        print(ray.get([one.join.remote(address) for one in self.workers]), flush=True)

    def _find_center(self) -> str:
        name = f"{self.prefix}_register_center"
        while True:
            if name in ray.util.list_named_actors():
                return ray.get(ray.get_actor(name).get_address.remote())
            time.sleep(1)


if __name__ == "__main__":
    ray.init(num_cpus=4, include_dashboard=False, namespace="rollout")
    WorkerGroup("actor_rollout", 2)

# /// case
# command = "python train.py"
# needs = ["ray"]
# culprits = [[0]]
# steps = ["script", "ray_actor"]
# after = ["Actor asked for", "Ray started", ""]
# own_code = true
# busy = true
# calls = ['_find_center', 'sleep', 'list_named_actors']
# causes = ["polling-loop", "own-code-sleeps", "retry-loop", "unknown"]
# ///
