"""A stand-in of vllm/distributed/utils.py."""

import dataclasses
import pickle
from datetime import timedelta

from torch.distributed import TCPStore


@dataclasses.dataclass
class StatelessProcessGroup:
    rank: int
    world_size: int
    store: TCPStore
    broadcast_counter: int = 0

    def broadcast_obj(self, obj, src):
        key = f"broadcast_from/{src}/{self.broadcast_counter}"
        self.broadcast_counter += 1
        if self.rank == src:
            self.store.set(key, pickle.dumps(obj))
            return obj
        return pickle.loads(self.store.get(key))

    @staticmethod
    def create(host, port, rank, world_size, store_timeout=300):
        store = TCPStore(
            host_name=host,
            port=port,
            world_size=world_size,
            is_master=rank == 0,
            timeout=timedelta(seconds=store_timeout),
            use_libuv=False,
        )
        return StatelessProcessGroup(rank=rank, world_size=world_size, store=store)
