"""Dask: two workers count for a while in tasks that call one another by seceding, the client waits
in gather(): healthy.
"""

import sys
import time

from distributed import Client, LocalCluster, worker_client


def count(seconds: float) -> int:
    end, sum_of = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        sum_of += sum(ord(letter) for letter in "once upon a time" * 500)
    return sum_of


def count_parts(seconds: float) -> int:
    with worker_client() as client:
        return sum(client.gather(client.map(count, [seconds / 2, seconds / 2 + 0.1])))


def main() -> None:
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster, Client(cluster) as client:
        shards = client.map(count_parts, [float(sys.argv[1]), float(sys.argv[1]) + 0.1])
        print(sum(client.gather(shards)) > 0, flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py $AMOUNT"
# outcome = "ok"
# amount = 50.0
# needs = ["distributed"]
# limit = 180
# ///
