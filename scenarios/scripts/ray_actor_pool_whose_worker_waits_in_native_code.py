"""Ray: an ActorPool of three scorers; one waits in the C library for a datagram of a licence server
that sends none. The driver waits in get_next_unordered() for the last result.

The two others have done their parts and are idle.
"""

import socket

import ray
from ray.util import ActorPool


@ray.remote
class Scorer:
    def __init__(self, number: int) -> None:
        self.number = number

    def ask_licence(self) -> bytes:
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.bind(("127.0.0.1", 0))
            return one.recv(64)

    def score(self, part: int) -> int:
        if part == 4:
            self.ask_licence()
        return part * self.number


def main() -> None:
    ray.init(num_cpus=4, include_dashboard=False)
    pool = ActorPool([Scorer.remote(number) for number in range(3)])
    for part in range(6):
        pool.submit(lambda actor, value: actor.score.remote(value), part)
    total = 0
    while pool.has_next():
        total += pool.get_next_unordered()
    print(total, flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[0], [-1]]
# steps = ["ray_get", "ray_wait", "script"]
# after = ["Ray started", "Answer of Ray there", ""]
# own_code = true
# calls = ['ray\.wait', 'ray\.get', 'get_next_unordered', 'main', 'ask_licence', 'score', 'recv']
# causes = ["nobody-sends", "endpoint-silent", "ray-task", "child-process-stuck"]
# says = ['Scorer']
# needs = ["ray"]
# ///
