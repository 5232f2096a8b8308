"""mp.spawn: rank 2 plays more episodes a round than the learner, rank 0, takes out of its queue.

The queue has room for sixteen; once it is full, rank 2 waits in put() while rank 0 is in the
barrier of that round and waits for it. Rank 2 does not keep to the number that all agreed on; that
it and rank 0 wait for one another is right as well.
"""

import argparse
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

EPISODES, ROOM = 4, 16


def learn(model: torch.nn.Module, queues: list[Any]) -> None:
    for queue in queues:
        for _ in range(EPISODES):
            model(torch.tensor(queue.get())).pow(2).mean().backward()


def act(queue: Any, short: bool) -> None:
    episodes = EPISODES + 3 if short else EPISODES  # short ones do not fill its time
    for number in range(episodes):
        queue.put([float(number)] * 16)


def train(rank: int, port: int, queues: list[Any]) -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=3)
    model = torch.nn.Linear(16, 1)
    for step in range(20):
        if rank == 0:
            learn(model, queues)
        else:
            act(queues[rank - 1], short=rank == 2)
        dist.barrier()
        for weight in model.parameters():
            dist.broadcast(weight.data, src=0)
        if rank == 0:
            print(f"round {step}", flush=True)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    context = mp.get_context("spawn")
    queues = [context.Queue(ROOM) for _ in range(2)]
    mp.spawn(train, args=(args.port, queues), nprocs=3)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# culprits = [[2], [0, 2]]
# waiting = [1]
# steps = ["process_group", "training", "steady", "first_collective", "ddp_wrap"]
# after = ["Barrier passed", "First broadcast done", "Process group ready", ""]
# own_code = true
# calls = ['put$', 'train\.act', 'Queue', 'distributed\.barrier']
# causes = ["deadlock"]
# ///
