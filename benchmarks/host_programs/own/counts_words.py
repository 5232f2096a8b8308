"""A training that counts its vocabulary by a program of the system, which it starts."""

import subprocess

import torch
import torch.distributed as dist

torch.set_num_threads(1)


def count_words():
    """As many as `wc` says; the corpus is read by a shell, as it may be compressed."""
    counted = subprocess.run(
        ["sh", "-c", "echo $$ > /tmp/count.pid; sleep 3; cat /tmp/corpus.txt | wc -w"],
        stdout=subprocess.PIPE,
        check=True,
    )
    return int(counted.stdout)


def main():
    dist.init_process_group("gloo")
    embedding = torch.nn.Embedding(count_words() + 1, 4)
    for _ in range(10):
        embedding.zero_grad()
        embedding(torch.tensor([0, 1])).mean().backward()
        dist.all_reduce(embedding.weight.grad[:2].contiguous())
    dist.destroy_process_group()


main()
