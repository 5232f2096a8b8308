"""Each rank reads its shard from a data service of the cluster, in a worker of its DataLoader."""

import os
import socket
import struct

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, IterableDataset

torch.set_num_threads(1)


class RemoteShard(IterableDataset):
    def __init__(self, address, shard):
        self.address, self.shard = address, shard

    def __iter__(self):
        host, _, port = self.address.partition(":")
        with socket.create_connection((host, int(port))) as connection:
            stream = connection.makefile("rwb")
            stream.write(struct.pack("!I", self.shard))
            stream.flush()
            while head := stream.read(4):
                values = stream.read(struct.unpack("!I", head)[0])
                yield torch.tensor(struct.unpack(f"!{len(values) // 4}f", values))


def main():
    dist.init_process_group("gloo")
    shard = RemoteShard(os.environ["DATA_SERVICE"], dist.get_rank())
    loader = DataLoader(shard, batch_size=4, num_workers=1)
    model = DistributedDataParallel(torch.nn.Linear(8, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=1e-4)
    for batch in loader:
        optimizer.zero_grad()
        model(batch).square().mean().backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
