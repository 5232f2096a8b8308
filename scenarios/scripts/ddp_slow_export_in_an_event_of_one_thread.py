"""Slow, no hang: rank 2's thread exports the weights with small naps, its main thread waits.

The others are in a barrier of a group of their own; the export writes a line into a file now and
then, and computes in between.
"""

import argparse
import threading
import time

import torch
import torch.distributed as dist


def export(model: torch.nn.Module, seconds: float, done: threading.Event) -> None:
    end = time.monotonic() + seconds
    with open("weights.txt", "w") as file:
        while time.monotonic() < end:
            for one in model.parameters():
                torch.linalg.svd(one if one.dim() > 1 else one[None])
            if int(end - time.monotonic()) % 5 == 0:
                file.write("a part\n")
                file.flush()
            time.sleep(0.05)
    done.set()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    meeting = dist.new_group(backend="gloo")
    model = torch.nn.Linear(96, 96)
    for step in range(6):
        model(torch.randn(4, 96)).pow(2).mean().backward()
        for one in model.parameters():
            dist.all_reduce(one.grad)
        model.zero_grad()
        if step == 3:
            done = threading.Event()
            if dist.get_rank() == 2:
                told = (model, args.seconds, done)
                threading.Thread(target=export, args=told, daemon=True).start()
                done.wait()
            dist.barrier(group=meeting)
        print(f"rank {dist.get_rank()} step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 45.0
# ///
