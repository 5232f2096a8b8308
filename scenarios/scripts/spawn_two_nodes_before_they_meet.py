"""A script stands for a node and spawns two workers; a shell starts it twice, as node 0 and node 1
of one job on one machine. The second worker of node 0 waits for a lock that a helper of node 0's
has, before it joins the group in which the three others wait for it.
"""

import argparse
import fcntl
import subprocess
import sys
import time

import torch.distributed as dist
import torch.multiprocessing as mp

HOLDS = """\
import fcntl, time
lock = open("shards.lock", "w")
fcntl.flock(lock, fcntl.LOCK_EX)
print("has it", flush=True)
time.sleep(100_000)
"""


def count_shards() -> int:
    with open("shards.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return 1


def run_worker(worker: int, node: int, nodes: int, url: str) -> None:
    number = 2 * node + worker
    if number == 1:
        time.sleep(1.0)
        count_shards()
    dist.init_process_group("gloo", init_method=url, world_size=2 * nodes, rank=number)
    dist.barrier()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--node-rank", type=int)
    parser.add_argument("--nodes", type=int)
    parser.add_argument("--url")
    given = parser.parse_args()
    if given.node_rank == 0:
        helper = subprocess.Popen([sys.executable, "-c", HOLDS], stdout=subprocess.PIPE)
        assert helper.stdout is not None
        helper.stdout.readline()
    mp.spawn(run_worker, nprocs=2, args=(given.node_rank, given.nodes, given.url))


if __name__ == "__main__":
    main()

# /// case
# command = "bash start.sh"
# culprits = [[1]]
# waiting = [0, 2, 3]
# steps = ["script"]
# after = [""]
# own_code = true
# calls = ["flock"]
# causes = ["file-lock-held"]
# [files]
# "start.sh" = '''
# url=tcp://127.0.0.1:29875
# python -u train.py --node-rank 0 --nodes 2 --url $url &
# python -u train.py --node-rank 1 --nodes 2 --url $url &
# wait
# '''
# ///
