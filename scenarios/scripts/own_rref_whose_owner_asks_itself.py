"""RPC with one thread a worker: rank 2 is asked for a table, and asks itself for a part of it.

The only thread that answers in rank 2 waits for an answer that the same thread would have to give.
Rank 1 is in RRef.to_here(), ranks 0 and 3 wait until all are done.
"""

import os

import torch
import torch.distributed.rpc as rpc

LONG = 7200


class Table:
    def __init__(self, rows: int) -> None:
        self.rows = torch.arange(rows, dtype=torch.float32)

    def part(self, first: int, last: int) -> torch.Tensor:
        return self.rows[first:last]


TABLE = Table(128)


def part(first: int, last: int) -> torch.Tensor:
    return TABLE.part(first, last)


def embedding(owner: str, first: int, last: int) -> torch.Tensor:
    """Return some rows; those past the middle are of another shard, named by its owner."""
    if last > 64:
        return rpc.rpc_sync(owner, part, args=(first, last), timeout=LONG)
    return part(first, last)


def main() -> None:
    torch.set_num_threads(1)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=1, rpc_timeout=LONG)
    rpc.init_rpc(f"shard{rank}", rank=rank, world_size=world, rpc_backend_options=options)
    for step in range(5):
        if rank == 1:
            last = 16 * (step + 1)
            rows = rpc.remote("shard2", embedding, args=("shard2", 0, last), timeout=LONG).to_here(
                LONG
            )
            print(f"step {step}: {rows.sum().item():.0f}", flush=True)
    rpc.shutdown(timeout=LONG)


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2], [1, 2]]
# waiting = [0, 3]
# steps = ["import_torch", "process_group", "rpc", "training", "teardown", "rpc_shutdown"]
# after = [
#   "torch imported", "RPC ready", "Process group ready", "First all_gather_object done", "",
# ]
# own_code = true
# calls = ['embedding', 'rpc_sync', 'shutdown', 'to_here', '_all_gather', 'wait', 'train\.main']
# causes = [
#   "pool-waits-for-itself", "server-asks-itself", "self-deadlock", "deadlock", "thread-stuck",
# ]
# limit = 300
# ///
