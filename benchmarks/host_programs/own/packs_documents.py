"""A training on packed documents, which srun starts; each task packs its own part of them first."""

import os
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import torch
import torch.distributed as dist

torch.set_num_threads(1)
LONGEST = 200  # characters that are tokenized at once


def take_environment():
    for name, variable in (
        ("RANK", "SLURM_PROCID"),
        ("WORLD_SIZE", "SLURM_NTASKS"),
        ("LOCAL_RANK", "SLURM_LOCALID"),
    ):
        os.environ[name] = os.environ[variable]


class Packer:
    def __init__(self, threads=2):
        self.pool = ThreadPoolExecutor(threads)

    def tokenize(self, text):
        return [ord(character) % 251 for character in text]

    def pack(self, document):
        """A long document is cut, and its parts are tokenized side by side."""
        if len(document) <= LONGEST:
            return self.tokenize(document)
        parts = [document[at : at + LONGEST] for at in range(0, len(document), LONGEST)]
        futures = [self.pool.submit(self.tokenize, part) for part in parts]
        return [token for future in futures for token in future.result()]

    def pack_all(self, documents):
        return list(self.pool.map(self.pack, documents))


def main():
    take_environment()
    dist.init_process_group("gloo")
    text = Path(f"/tmp/documents-{os.environ['LOCAL_RANK']}.txt").read_text()
    packed = Packer().pack_all(text.splitlines())
    model = torch.nn.Embedding(256, 4)
    for tokens in packed[:10]:
        model.zero_grad()
        model(torch.tensor(tokens[:16])).mean().backward()
        dist.all_reduce(model.weight.grad)
    dist.destroy_process_group()


main()
