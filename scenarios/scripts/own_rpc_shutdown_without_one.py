"""RPC: rank 2 of four swallows the error of its last shard and leaves without rpc.shutdown(); the
others are in shutdown(), which waits until all have called it.

Rank 2's process lives on: a thread of it, that is no daemon, keeps the samples of its cache.
"""

import os
import threading

import torch
import torch.distributed.rpc as rpc

LONG = 7200


def score(rows: int) -> float:
    return torch.ones(rows).sum().item()


def evaluate(rank: int, world: int) -> None:
    for step in range(3):
        if rank == 2 and step == 2:
            raise FileNotFoundError("shard-2-2.bin")
        rpc.rpc_sync(f"worker{(rank + 1) % world}", score, args=(8 + step,), timeout=LONG)


def main() -> None:
    torch.set_num_threads(1)
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=2, rpc_timeout=LONG)
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=world, rpc_backend_options=options)
    keep = threading.Event()
    if rank == 2:
        threading.Thread(target=keep.wait, name="cache").start()
    try:
        evaluate(rank, world)
    except FileNotFoundError as error:
        print(f"rank {rank} leaves out {error}", flush=True)
        return
    rpc.shutdown(timeout=LONG)


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["import_torch", "rpc", "training", "teardown", "rpc_shutdown", "script"]
# after = ["torch imported", "RPC ready", "Process group ready", "First all_gather_object done", ""]
# own_code = true
# calls = ['shutdown', '_shutdown', 'join', 'wait', 'Thread', 'threading', '^$']
# causes = ["thread-at-exit", "rank-left", "swallowed-exception"]
# limit = 300
# ///
