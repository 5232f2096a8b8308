"""DDP over two machines; each rank has a DataLoader with a worker that reads one file an image."""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, Dataset
from torch.utils.data.distributed import DistributedSampler

torch.set_num_threads(1)


class Images(Dataset):
    def __init__(self, root):
        self.root = root

    def __len__(self):
        return 64

    def __getitem__(self, index):
        with open(f"{self.root}/{index}.txt") as file:
            label = float(file.read())
        return torch.full((8,), label), torch.tensor([label])


def main():
    dist.init_process_group("gloo")
    images = Images("/tmp/images")
    sampler = DistributedSampler(images, shuffle=False)
    loader = DataLoader(images, batch_size=2, sampler=sampler, num_workers=1)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for epoch in range(3):
        sampler.set_epoch(epoch)
        for inputs, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(inputs), labels).backward()
            optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
