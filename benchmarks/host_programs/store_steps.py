"""Ranks meet at a key-value store of torch alone, as schedulers of rollouts do."""

import os
from datetime import timedelta

from faults import come_to
from torch.distributed import TCPStore

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def all_there(store, name):
    store.set(f"{name}/{RANK}", "ready")
    store.wait([f"{name}/{rank}" for rank in range(WORLD)], timedelta(hours=2))


def main():
    come_to("before")
    hour = timedelta(hours=1)
    address = os.environ["MASTER_ADDR"]
    store = TCPStore(address, 9230, WORLD, RANK == 0, hour, wait_for_workers=False)
    come_to("rendezvous")
    all_there(store, "start")
    for step in range(3):
        all_there(store, f"rollout-{step}")
    come_to("between")
    all_there(store, "weights")
    come_to("end")
    all_there(store, "end")


main()
