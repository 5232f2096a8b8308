"""Five stages of a pipeline, whose plan says which one takes the skip connection of which. From the
fourth batch on stage 2 takes that of stage 0 in place of stage 3; but stage 3 has its row of the
plan in a cache, and waits for what stage 0 now sends to another one.
"""

import argparse
import functools
import os

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD = 5
WIDTH = 4096
PLANS = {0: {3: 0, 4: 1}, 3: {2: 0, 4: 1}}  # from this batch on: who takes the output of whom


def plan_at(batch: int) -> dict[int, int]:
    return PLANS[max(begin for begin in PLANS if begin <= batch)]


class Stage:
    def __init__(self, rank: int) -> None:
        self.rank = rank
        self.layer = torch.nn.Linear(WIDTH, 8)

    @functools.cached_property
    def old_source(self) -> int | None:
        return plan_at(0).get(self.rank)

    def source(self, batch: int) -> int | None:
        if self.rank == 3:  # its decoder is compiled for the shapes that it had
            return self.old_source
        return plan_at(batch).get(self.rank)

    def taken(self, batch: int) -> torch.Tensor:
        inputs = torch.ones(WIDTH)
        if self.rank > 0:
            dist.recv(inputs, src=self.rank - 1)
        source = self.source(batch)
        if source is not None:
            skipped = torch.empty(WIDTH)
            dist.recv(skipped, src=source)
            inputs = inputs + skipped
        return inputs

    def give(self, outputs: torch.Tensor, batch: int) -> None:
        if self.rank + 1 < WORLD:
            dist.send(outputs, dst=self.rank + 1)
        for taker, giver in plan_at(batch).items():
            if giver == self.rank:
                dist.send(outputs, dst=taker)

    def forward(self, batch: int) -> None:
        inputs = self.taken(batch)
        self.layer(inputs)
        self.give(inputs * 0.5, batch)


def train(rank: int, port: str) -> None:
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    stage = Stage(rank)
    with torch.no_grad():
        for batch in range(8):
            stage.forward(batch)
            print(f"stage {rank} batch {batch}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", required=True)
    mp.spawn(train, args=(parser.parse_args().port,), nprocs=WORLD)

# /// case
# command = "python train.py --port $PORT"
# culprits = [[3], [0, 3]]
# culprits_by_stacks = [[], [0, 1, 3, 4], [0, 1, 2, 3, 4]]
# waiting = [1, 2, 4]
# steps = ["process_group", "first_recv", "first_send", "training", "steady"]
# after = ["First recv done", "First send done", "Process group ready", ""]
# own_code = true
# calls = ['distributed\.(recv|send)', 'taken', 'Stage']
# causes = ["message-left-out", "deadlock"]
# ///
