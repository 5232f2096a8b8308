"""mp.spawn: a pipeline of four stages, and rank 3 believes that a fifth one follows.

It was given the number of layers where the number of stages belongs: it sends its activations on
to rank 0, which receives nothing, and waits until they are sent; the others reduce the loss. That
rank 0, which does not receive, is named beside it is right as well.
"""

import argparse

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD, LAYERS = 4, 5


class Stage:
    """A stage of the pipeline, and where its activations come from and go to."""

    def __init__(self, rank: int, stages: int) -> None:
        self.rank, self.stages = rank, stages
        self.layer = torch.nn.Linear(16, 16)

    def run(self, size: int) -> torch.Tensor:
        came = torch.randn(size, 16)
        if self.rank > 0:
            dist.recv(came, src=self.rank - 1)
        with torch.no_grad():
            made = self.layer(came).relu()
        if self.rank < self.stages - 1:
            dist.isend(made, dst=(self.rank + 1) % WORLD).wait()
        return made


def train(rank: int, port: int) -> None:
    torch.set_num_threads(1)
    dist.init_process_group(
        "gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=WORLD
    )
    stage = Stage(rank, LAYERS if rank == 3 else WORLD)
    for step in range(5):
        loss = stage.run(8).mean()
        dist.all_reduce(loss)
        print(f"rank {rank} step {step}: {float(loss):.4f}", flush=True)
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    mp.spawn(train, args=(args.port,), nprocs=WORLD)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# culprits = [[3], [0, 3]]
# waiting = [1, 2]
# steps = ["process_group", "ddp_wrap", "first_collective", "training", "first_all_reduce"]
# after = ["First recv done", "First all_reduce done", "Process group ready", ""]
# own_code = true
# calls = ['wait$', 'isend', 'Stage\.run', 'train\.run', 'distributed\.all_reduce']
# causes = ["message-left-out", "deadlock", "rank-conditional-collective", "collective-mismatch"]
# ///
