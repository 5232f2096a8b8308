"""Dask: a task hands parts of its work to the cluster by get_client() and waits for them by
result(), without seceding; each worker has one thread, and both are in such a task.

The parts never begin. The client waits in gather() for both tasks.
"""

from distributed import Client, Future, LocalCluster, get_client


def tokenize(text: str) -> list[int]:
    return [ord(letter) for letter in text]


def encode_shard(shard: int) -> int:
    client = get_client()
    parts: list[Future] = client.map(tokenize, [f"shard {shard} part {n}" for n in range(3)])
    return sum(count_all(parts))


def count_all(parts: list[Future]) -> list[int]:
    return [len(part.result()) for part in parts]


def main() -> None:
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster, Client(cluster) as client:
        shards = client.map(encode_shard, range(2))
        print(sum(client.gather(shards)), "codes", flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# needs = ["distributed"]
# culprits = [[0], [-1]]
# steps = ["script"]
# after = [""]
# own_code = true
# calls = ['gather', 'result', 'count_all', 'encode_shard', 'sync']
# says = ['count_all|encode_shard|result']
# ///
