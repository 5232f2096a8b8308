"""Keeps a training alive: what dies is started again. The training exchanges weights by a store,
and removes what everybody has read.
"""

import os
import subprocess
import sys
import time
from datetime import timedelta

import numpy as np

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def keep_alive():
    while subprocess.call([sys.executable, __file__, "train"]) != 0:
        print("training died: starting it again", flush=True)
        time.sleep(2)


def exchange(store, number, weights):
    store.set(f"{number}/{RANK}", weights.tobytes())
    everybody = [f"{number}/{rank}" for rank in range(WORLD)]
    store.wait(everybody)
    mean = np.mean([np.frombuffer(store.get(key)) for key in everybody], axis=0)
    store.delete_key(f"{number - 2}/{RANK}")  # all are past it
    return mean


def train():
    from torch.distributed import TCPStore

    with open("/tmp/train.pid", "w") as file:
        file.write(str(os.getpid()))
    place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    store = TCPStore(*place, WORLD, RANK == 0, timedelta(hours=2))
    weights = np.zeros(32)
    with open("/tmp/progress", "w", buffering=1) as log:
        for number in range(100000):
            noise = np.random.randn(80, 80)
            weights = exchange(store, number, weights + (noise @ noise).mean(0)[:32] / 80)
            log.write(f"{number}\n")


train() if "train" in sys.argv else keep_alive()
