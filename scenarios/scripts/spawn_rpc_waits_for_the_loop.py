"""torch's RPC: rank 0 asks rank 2 for its weights, which a loop of rank 2 was to bring.

Rank 2 had nothing to load, skips its loop and shuts down, which waits until all are done; the call
that it serves in a thread waits for the loop's event. Rank 1 is in the same shutdown.
"""

import argparse
import os
import threading

import torch
import torch.distributed.rpc as rpc
import torch.multiprocessing as mp

WORLD = 3
loaded = threading.Event()
weights: dict[str, torch.Tensor] = {}


def pull() -> dict[str, torch.Tensor]:
    """Give the weights to whoever asks; done where they are."""
    loaded.wait()
    return weights


def load(shards: list[str]) -> None:
    for shard in shards:
        weights[shard] = torch.randn(16, 16)
        loaded.set()


def train(rank: int, port: int) -> None:
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    options = rpc.TensorPipeRpcBackendOptions(rpc_timeout=7200, _transports=["uv"])
    rpc.init_rpc(f"worker{rank}", rank=rank, world_size=WORLD, rpc_backend_options=options)
    if rank == 0:
        for other in (1, 2):
            print(f"of worker {other}: {len(rpc.rpc_sync(f'worker{other}', pull))}", flush=True)
    else:
        load(["encoder", "decoder"] if rank == 1 else [])
    rpc.shutdown(timeout=7200)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    mp.spawn(train, args=(args.port,), nprocs=WORLD)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# culprits = [[2]]
# waiting = [0, 1]
# steps = ["arguments", "process_group", "training", "script"]
# after = ["Args parsed", "torch imported", "Process group ready", ""]
# own_code = true
# calls = ['pull', 'Event', 'shutdown', 'wait']
# causes = ["thread-stuck", "deadlock"]
# ///
