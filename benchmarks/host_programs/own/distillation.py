"""Two machines have the teacher, two the student; a file of each machine says which it is."""

import json

import torch
import torch.distributed as dist

torch.set_num_threads(1)
ROLES = {"teacher": [0, 1], "student": [2, 3]}


def read_role():
    with open("/tmp/role.json") as file:
        return json.load(file)["role"]


class Trainer:
    def __init__(self, role):
        groups = {name: dist.new_group(ranks) for name, ranks in ROLES.items()}
        self.group = groups[role]
        self.weights = torch.zeros(16)

    def fit(self, steps):
        for _ in range(steps):
            gradient = torch.randn(16)
            dist.all_reduce(gradient, group=self.group)
            self.weights -= 0.1 * gradient

    def exchange(self):
        logits = torch.randn(4)
        dist.broadcast(logits, src=0)
        return logits


def main():
    dist.init_process_group("gloo")
    trainer = Trainer(read_role())
    for _ in range(3):
        trainer.exchange()
        trainer.fit(4)
        dist.barrier()
    dist.destroy_process_group()


main()
