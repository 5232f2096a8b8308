"""A process beside each rank makes the batches of the next steps, and gives them by a queue."""

import multiprocessing

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

torch.set_num_threads(1)
STEPS = 60


def tokenize(path, batches):
    with open(path) as file:
        for number, line in enumerate(file):
            ids = [len(word) for word in line.split()]
            batches.put(torch.tensor((ids * 8)[:8], dtype=torch.float32).tolist())
            if number == STEPS - 1:
                break


def main():
    context = multiprocessing.get_context("spawn")
    batches = context.Queue(maxsize=4)
    maker = context.Process(target=tokenize, args=("/tmp/corpus.txt", batches), daemon=True)
    maker.start()
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-5)
    for _ in range(STEPS):
        batch = torch.tensor(batches.get())
        optimizer.zero_grad()
        model(batch[None]).square().mean().backward()
        optimizer.step()
    maker.join()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
