"""Healthy: three workers of tensor parallelism load; TP2 dequantizes its experts, which TP0 and TP1
have not, and they wait in a barrier for a minute; then the server answers once and ends.

Each expert takes some seconds, of which most are a sleep (the accelerator). No line is printed.
"""

import argparse
import multiprocessing
import time
from multiprocessing.connection import Connection

import setproctitle

spawn = multiprocessing.get_context("spawn")


def dequantize(experts: int, seconds: float) -> int:
    import torch

    done = 0
    for expert in range(experts):
        weights = torch.full((256, 256), float(expert)).to(torch.bfloat16)
        time.sleep(seconds / experts)  # the accelerator
        done += int(weights.float().mean().item() == expert)
    return done


def run_worker(rank: int, port: int, seconds: float, pipe: Connection) -> None:
    setproctitle.setproctitle(f"textserve::worker_TP{rank}")
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=3)
    if rank == 2:
        dequantize(12, seconds)
    dist.barrier()
    pipe.send("ready")
    pipe.send(pipe.recv().upper())
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    pipes, workers = [], []
    for rank in range(3):
        ours, theirs = spawn.Pipe()
        own = (rank, args.port, args.seconds, theirs)
        workers.append(spawn.Process(target=run_worker, args=own))
        workers[-1].start()
        theirs.close()
        pipes.append(ours)
    for one in pipes:
        one.recv()
    for one in pipes:
        one.send("once upon a time")
    print([one.recv() for one in pipes], flush=True)
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT --seconds $AMOUNT"
# needs = ["setproctitle"]
# outcome = "ok"
# amount = 60.0
# limit = 240.0
# ///
