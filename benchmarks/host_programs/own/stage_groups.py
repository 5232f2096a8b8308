"""Pipeline stages with a group for every two neighbours, made in the order of a configuration."""

import json

import torch
import torch.distributed as dist

torch.set_num_threads(1)


def read_links():
    """The pairs of machines that exchange activations, as this machine's topology lists them."""
    with open("/tmp/topology.json") as file:
        return [tuple(link) for link in json.load(file)["links"]]


class Stage:
    def __init__(self):
        self.rank = dist.get_rank()
        self.groups = {link: dist.new_group(link) for link in read_links()}
        self.layer = torch.nn.Linear(16, 16)

    def exchange(self, values):
        for link, group in sorted(self.groups.items()):
            if self.rank in link:
                dist.all_reduce(values, group=group)
        return values

    def forward(self):
        with torch.no_grad():
            return self.exchange(self.layer(torch.randn(4, 16)))


def main():
    dist.init_process_group("gloo")
    stage = Stage()
    for _ in range(5):
        stage.forward()
        dist.barrier()
    dist.destroy_process_group()


main()
