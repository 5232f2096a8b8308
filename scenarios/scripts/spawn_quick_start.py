"""torch's DDP series with mp.spawn: a Trainer class, a sampler, a snapshot at the end."""

import argparse
import os

import torch
import torch.multiprocessing as mp
from torch.distributed import destroy_process_group, init_process_group
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler


def ddp_setup(rank: int, world_size: int, port: str) -> None:
    os.environ["MASTER_ADDR"] = "localhost"
    os.environ["MASTER_PORT"] = port
    init_process_group(backend="gloo", rank=rank, world_size=world_size)


def main(rank: int, world_size: int, port: str, epochs: int) -> None:
    ddp_setup(rank, world_size, port)
    data = TensorDataset(torch.randn(128, 20), torch.randn(128, 1))
    loader = DataLoader(data, batch_size=32, shuffle=False, sampler=DistributedSampler(data))
    model = DDP(torch.nn.Linear(20, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-3)
    for epoch in range(epochs):
        loader.sampler.set_epoch(epoch)  # type: ignore[attr-defined, unused-ignore]
        for source, targets in loader:
            optimizer.zero_grad()
            torch.nn.functional.mse_loss(model(source), targets).backward()
            optimizer.step()
        print(f"[rank{rank}] Epoch {epoch} | Steps: {len(loader)}")
    if rank == 0:
        torch.save(model.module.state_dict(), "checkpoint.pt")
    destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="simple distributed training job")
    parser.add_argument("total_epochs", type=int)
    parser.add_argument("--port", default="12355")
    args = parser.parse_args()
    mp.spawn(main, args=(2, args.port, args.total_epochs), nprocs=2)
    print(sorted(name for name in os.listdir() if name.endswith(".pt")))

# /// case
# command = "python train.py 2 --port $PORT"
# outcome = "ok"
# ///
