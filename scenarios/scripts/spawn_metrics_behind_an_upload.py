"""mp.spawn: each rank has one thread for uploads and metrics; rank 1's upload never ends.

Its task that reduces the metrics is queued behind the upload, and the other ranks' are in the
reduction: every main thread waits for a future.
"""

import argparse
import urllib.request
from concurrent.futures import Future, ThreadPoolExecutor

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel


def upload(url: str, body: bytes) -> int:
    request = urllib.request.Request(url, data=body, method="PUT")
    with urllib.request.urlopen(request) as answer:
        return int(answer.status)


def reduced(loss: float) -> float:
    total = torch.tensor([loss])
    dist.all_reduce(total)
    return float(total) / dist.get_world_size()


def train(rank: int, world: int, port: int, bucket: str) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=world
    )
    model = DistributedDataParallel(torch.nn.Linear(16, 4))
    background = ThreadPoolExecutor(max_workers=1, thread_name_prefix="background")
    pending: Future[float] | None = None
    for step in range(6):
        loss = model(torch.randn(8, 16)).pow(2).mean()
        loss.backward()
        if step == 2 and rank == 1:  # rank 1 has the samples to look at
            background.submit(upload, f"{bucket}/samples-{step}.png", b"\x89PNG" * 100)
        pending = background.submit(reduced, float(loss))
        print(f"rank {rank} step {step}: {pending.result():.4f}", flush=True)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--bucket", required=True)
    args = parser.parse_args()
    mp.spawn(train, args=(3, args.port, args.bucket), nprocs=3)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT --bucket $SERVICE/bucket"
# world = "silent_service"
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["first_backward", "steady", "training", "all_reduce", "first_all_reduce"]
# after = ["First backward done", "First all_reduce done", ""]
# own_code = true
# calls = ['urlopen', 'upload', 'Future\.result']
# causes = ["endpoint-silent", "service-silent", "thread-stuck"]
# ///
