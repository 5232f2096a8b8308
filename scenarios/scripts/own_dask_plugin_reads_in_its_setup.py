"""Dask: a plugin of the workers reads its table of tokens in setup(), from a pipe into which nobody
writes; setup() runs in the worker's event loop, and the client waits until it is registered.

One worker of two has the plugin's file; that one answers nothing more, not even its nanny.
"""

import sys

from distributed import Client, LocalCluster, Worker, WorkerPlugin


class TokenTable(WorkerPlugin):
    name = "token-table"

    def __init__(self, path: str) -> None:
        self.path, self.tokens = path, {}

    def setup(self, worker: Worker) -> None:
        if worker.name == 1:
            with open(self.path) as table:
                self.tokens = {line: number for number, line in enumerate(table)}


def count(text: str) -> int:
    return len(text.split())


def main(path: str) -> None:
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster, Client(cluster) as client:
        client.register_plugin(TokenTable(path))
        texts = client.map(count, ["once upon", "a time"])
        print(sum(client.gather(texts)), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])

# /// case
# command = "python train.py $FIFO"
# world = "unopened_fifo"
# needs = ["distributed"]
# culprits = [[-1]]
# culprits_by_stacks = [[0]]
# waiting = [0]
# steps = ["script"]
# after = [""]
# own_code = true
# calls = ['open', 'setup']
# causes = ["pipe-no-writer"]
# says = ['pipe']
# ///
