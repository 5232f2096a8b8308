"""Three ranks that a script starts by hand, each in brackets with its output through tee; rank 1
reads a vocabulary from a named pipe that nobody writes to.
"""

import os

import torch
import torch.distributed as dist


class Vocabulary:
    def __init__(self, path: str) -> None:
        self.words = self._read(path)

    def _read(self, path: str) -> list[str]:
        with open(path) as file:
            return file.read().split()


def main() -> None:
    dist.init_process_group("gloo")
    total = torch.ones(4)
    for _ in range(3):
        dist.all_reduce(total)
    feed = os.environ["FIFO"] if dist.get_rank() == 1 else os.devnull
    size = torch.tensor(len(Vocabulary(feed).words))
    dist.all_reduce(size)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "bash go.sh $PORT"
# world = "unopened_fifo"
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["first_all_reduce", "training"]
# after = ["First all_reduce done"]
# own_code = true
# calls = ["open", "_read"]
# causes = ["pipe-no-writer"]
# [files]
# "go.sh" = """
# export MASTER_ADDR=127.0.0.1 MASTER_PORT=$1 WORLD_SIZE=3
# for r in 0 1 2; do
#     ( export RANK=$r LOCAL_RANK=$r; python train.py 2>&1 | tee log.$r ) &
# done
# wait
# """
# ///
