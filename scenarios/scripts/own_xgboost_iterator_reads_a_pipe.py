"""XGBoost on three processes: the iterator of rank 1 opens its second part, which is a named pipe
that nobody writes; the others wait for it in the sketch of the quantiles, in native code.
"""

import multiprocessing
import os

import numpy as np
import xgboost
from xgboost import collective
from xgboost.tracker import RabitTracker

WORLD = 3


class Parts(xgboost.DataIter):
    def __init__(self, rank: int) -> None:
        self.names = [f"part-{rank}-{number}.npy" for number in range(2)]
        self.at = 0
        super().__init__()

    def next(self, input_data) -> bool:
        if self.at == len(self.names):
            return False
        with open(self.names[self.at], "rb") as part:
            table = np.load(part)
        input_data(data=table[:, 1:], label=table[:, 0])
        self.at += 1
        return True

    def reset(self) -> None:
        self.at = 0


def train(rank: int, arguments: dict) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(WORLD), LOCAL_RANK=str(rank))
    for number in range(2):
        name = f"part-{rank}-{number}.npy"
        if (rank, number) == (1, 1):
            os.mkfifo(name)
        else:
            np.save(name, np.random.default_rng(rank).random((200, 5), dtype=np.float32))
    with collective.CommunicatorContext(dmlc_task_id=str(rank), **arguments):
        rows = xgboost.QuantileDMatrix(Parts(rank), max_bin=16)
        xgboost.train({"nthread": 1}, rows, num_boost_round=5)
    print(rank, "is done", flush=True)


def main() -> None:
    tracker = RabitTracker(host_ip="127.0.0.1", n_workers=WORLD, sortby="task")
    tracker.start()
    arguments = tracker.worker_args()
    fresh = multiprocessing.get_context("spawn")
    ranks = [fresh.Process(target=train, args=(rank, arguments)) for rank in range(WORLD)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["script", "training"]
# after = [""]
# own_code = true
# calls = ['next', 'open']
# causes = ["pipe-no-writer"]
# needs = ["xgboost"]
# ///
