"""Ray: a task tokenizes its shard with a multiprocessing.Pool, one of whose workers is killed in
the middle, as where memory runs out; the pool starts another one, and the task waits for its chunk.

The second task has ended well; the driver waits for the first.
"""

import ray
from shards import Shard


@ray.remote
def count_tokens(number: int) -> int:
    return Shard(number).count()


def main() -> None:
    ray.init(num_cpus=2, include_dashboard=False)
    print(ray.get([count_tokens.remote(number) for number in range(2)]), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# needs = ["ray"]
# culprits = [[-1], [0]]
# steps = ["ray_get", "script"]
# after = ["Ray started", ""]
# own_code = true
# calls = ['ray\.get', 'count', 'next', 'pool']
# causes = ["pool-worker-lost", "ray-task", "worker-dead"]
# says = ['count_tokens|pool']
# [files]
# "shards.py" = '''
# """A shard of lines, and how its tokens are counted."""
# import multiprocessing
# import os
# import signal
#
#
# def tokenize(line: str) -> int:
#     if line.startswith("huge"):
#         os.kill(os.getpid(), signal.SIGKILL)
#     return len(line.split())
#
#
# class Shard:
#     def __init__(self, number: int) -> None:
#         self.lines = [f"line {n} of shard {number}" for n in range(40)]
#         if number == 0:
#             self.lines[17] = "huge line"
#
#     def count(self) -> int:
#         with multiprocessing.get_context("fork").Pool(2) as pool:
#             return sum(pool.imap(tokenize, self.lines, chunksize=4))
# '''
# ///
