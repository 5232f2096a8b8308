"""Dask: tasks that write partitions in turn wait for an Event of the one before; the third of them
waits for a name that nobody sets, for the partitions are numbered from one.

Two workers with two threads each; the client waits for the written paths in gather().
"""

from dataclasses import dataclass

import distributed
from distributed import Client, LocalCluster


@dataclass(frozen=True)
class Partition:
    number: int
    rows: tuple[int, ...]

    @property
    def before(self) -> str:
        return f"part-{self.number - 1 if self.number != 3 else 0}-written"


def write_partition(part: Partition) -> str:
    if part.number > 1:
        distributed.Event(part.before).wait()
    with open(f"part-{part.number}.txt", "w") as file:
        file.write("\n".join(map(str, part.rows)))
    distributed.Event(f"part-{part.number}-written").set()
    return file.name


def main() -> None:
    cluster = LocalCluster(n_workers=2, threads_per_worker=2, dashboard_address=None)
    with cluster, Client(cluster) as client:
        parts = [Partition(number, tuple(range(number * 10))) for number in range(1, 4)]
        print(client.gather(client.map(write_partition, parts)), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# needs = ["distributed"]
# culprits = [[-1]]
# culprits_by_stacks = [[0]]
# waiting = [0]
# steps = ["script"]
# after = [""]
# own_code = true
# calls = ['wait', 'write_partition', 'Event']
# causes = ["nobody-sends", "dead-producer", "child-process-stuck", "unknown"]
# says = ['write_partition|Event|wait']
# ///
