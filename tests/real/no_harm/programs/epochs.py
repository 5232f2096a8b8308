"""Two epochs of real torch, each with spawned workers whose dataset holds functions of torch's."""

import functools
import sys
import types

# Its first optimizer would import the compiler, and that is most of what this takes.
compiler = sys.modules["torch._dynamo"] = types.ModuleType("torch._dynamo")
compiler.disable = lambda function, *rest, **more: function
compiler.graph_break = lambda: None

import torch  # noqa: E402  after what it is not to import
from torch.utils.data import DataLoader, Dataset  # noqa: E402


class Rows(Dataset):
    def __init__(self):
        self.load = torch.load
        self.part = functools.partial(torch.load, weights_only=True)
        self.compile = torch.compile

    def __len__(self):
        return 8

    def __getitem__(self, index):
        return torch.ones(2) * index


def main():
    net = torch.nn.Linear(2, 1)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.01)
    rows = DataLoader(Rows(), batch_size=1, num_workers=1, multiprocessing_context="spawn")
    for epoch in range(2):
        for batch in rows:
            optimizer.zero_grad()
            net(batch).sum().backward()
            optimizer.step()
        print("epoch", epoch, flush=True)


if __name__ == "__main__":
    main()
