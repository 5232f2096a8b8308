"""Data-parallel training; each machine notes in a database of its own which samples it has seen."""

import sqlite3

import torch
import torch.distributed as dist

torch.set_num_threads(1)


class SeenSamples:
    def __init__(self, path):
        self.database = sqlite3.connect(path, timeout=7200)
        self.database.execute("CREATE TABLE IF NOT EXISTS seen (step INTEGER, sample INTEGER)")

    def note(self, step, samples):
        with self.database:
            rows = [(step, int(sample)) for sample in samples]
            self.database.executemany("INSERT INTO seen VALUES (?, ?)", rows)


def main():
    dist.init_process_group("gloo")
    seen = SeenSamples("/tmp/seen.db")
    weights = torch.zeros(16)
    for step in range(200):
        samples = torch.randint(0, 10000, (8,))
        gradient = torch.randn(16) * samples.sum()
        dist.all_reduce(gradient)
        weights -= 1e-6 * gradient
        if step % 20 == 0:
            seen.note(step, samples)
    dist.barrier()
    dist.destroy_process_group()


main()
