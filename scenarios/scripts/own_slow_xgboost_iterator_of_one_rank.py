"""Healthy and silent: XGBoost on three processes; the iterator of rank 2 waits between its parts
for a store that gives one part after the other, and the others wait in the sketch.
"""

import argparse
import multiprocessing
import os
import time

import numpy as np
import xgboost
from xgboost import collective
from xgboost.tracker import RabitTracker

WORLD = 3
PARTS = 4


class Parts(xgboost.DataIter):
    def __init__(self, rank: int, pause: float) -> None:
        self.random = np.random.default_rng(rank)
        self.pause = pause
        self.at = 0
        self.kept: list = []
        super().__init__()

    def fetch(self) -> np.ndarray:
        time.sleep(self.pause)
        return self.random.random((200, 5), dtype=np.float32)

    def next(self, input_data) -> bool:
        if self.at == PARTS:
            return False
        if self.at == len(self.kept):
            self.kept.append(self.fetch())
        table = self.kept[self.at]
        input_data(data=table[:, 1:], label=table[:, 0])
        self.at += 1
        return True

    def reset(self) -> None:
        self.at = 0


def train(rank: int, arguments: dict, seconds: float) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(WORLD), LOCAL_RANK=str(rank))
    with collective.CommunicatorContext(dmlc_task_id=str(rank), **arguments):
        pause = seconds / PARTS if rank == 2 else 0.0
        rows = xgboost.QuantileDMatrix(Parts(rank, pause), max_bin=16)
        xgboost.train({"nthread": 1}, rows, num_boost_round=5)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float)
    seconds = parser.parse_args().seconds
    tracker = RabitTracker(host_ip="127.0.0.1", n_workers=WORLD, sortby="task")
    tracker.start()
    arguments = tracker.worker_args()
    fresh = multiprocessing.get_context("spawn")
    ranks = [fresh.Process(target=train, args=(rank, arguments, seconds)) for rank in range(WORLD)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()
    print("all done", [one.exitcode for one in ranks], flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 40.0
# needs = ["xgboost"]
# ///
