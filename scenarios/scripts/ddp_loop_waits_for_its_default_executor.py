"""Rank 3 of five uploads by asyncio with a time limit: the limit comes, and its thread stays.

asyncio.run() ends only when the threads of its executor have, and one of them waits for a server.
"""

import argparse
import asyncio
import json
import urllib.request

import torch
import torch.distributed as dist


def send(url: str, rank: int, step: int) -> int:
    body = json.dumps({"rank": rank, "step": step}).encode()
    with urllib.request.urlopen(urllib.request.Request(url, body)) as answer:
        return len(answer.read())


async def publish(url: str, rank: int, step: int) -> None:
    """Send what there is, but wait for no server for longer than two seconds."""
    try:
        await asyncio.wait_for(asyncio.to_thread(send, url, rank, step), timeout=2.0)
    except (TimeoutError, OSError):
        print(f"rank {rank} step {step}: not published", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    weights = torch.zeros(64)
    for step in range(8):
        weights += torch.rand(64)
        dist.all_reduce(weights)
        weights /= dist.get_world_size()
        if rank == 3 and step == 4:  # it has the best score
            asyncio.run(publish(args.url, rank, step))
    print(f"rank {rank}: {weights.sum().item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=5 train.py --url $SERVICE"
# world = "silent_service"
# culprits = [[3]]
# waiting = [0, 1, 2, 4]
# steps = [
#   "training", "steady", "first_step", "first_backward", "first_batch", "first_collective",
#   "all_reduce", "first_all_reduce", "asyncio",
# ]
# after = ["Process group ready", "First all_reduce done", ""]
# own_code = true
# calls = ['asyncio', 'urlopen', 'send', 'publish', 'getresponse', 'recv', 'shutdown']
# causes = ["service-silent", "endpoint-silent", "thread-stuck", "event-loop"]
# ///
