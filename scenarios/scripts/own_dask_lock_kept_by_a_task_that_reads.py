"""Dask: tasks write into one store in turn, by a distributed Lock; the one that has the lock opens
its shard, a named pipe that nobody writes. The others wait for the lock, the client for all.

Three workers of one thread each; the fourth task has not begun.
"""

import sys

from distributed import Client, LocalCluster, Lock


def write(shard: int, feed: str) -> int:
    with Lock("store"):
        return append(feed if shard == 0 else __file__)


def append(path: str) -> int:
    with open(path, "rb") as rows:
        return len(rows.read())


def main() -> None:
    cluster = LocalCluster(n_workers=3, threads_per_worker=1, dashboard_address=None)
    client = Client(cluster)
    first = client.submit(write, 0, sys.argv[1])
    rest = client.map(write, range(1, 4), feed=sys.argv[1], priority=-10)
    print("rows:", sum(client.gather([first, *rest])), flush=True)
    client.close()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py $FIFO"
# world = "unopened_fifo"
# needs = ["distributed"]
# culprits = [[0], [-1]]
# steps = ["script"]
# after = [""]
# own_code = true
# calls = ['gather', 'append', 'write', 'open']
# causes = ["pipe-no-writer"]
# says = ['feed']
# ///
