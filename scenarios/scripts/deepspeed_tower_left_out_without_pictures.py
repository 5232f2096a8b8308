"""ZeRO-3 over a model with a tower for pictures: a batch of rank 1 of three has text alone.

It leaves the tower out, whose weights all ranks gather together before its forward; the others
gather the tower's, rank 1 those of the layer behind it.
"""

import argparse

import deepspeed
import torch

SHAPE = {
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "Adam", "params": {"lr": 0.001, "torch_adam": True}},
    "zero_optimization": {"stage": 3, "stage3_param_persistence_threshold": 0},
}


class Reader(torch.nn.Module):
    """Reads text, and pictures where there are any."""

    def __init__(self) -> None:
        super().__init__()
        self.words = torch.nn.Linear(32, 64)
        self.tower = torch.nn.Sequential(torch.nn.Linear(48, 96), torch.nn.Linear(96, 64))
        self.head = torch.nn.Linear(64, 8)

    def forward(self, words: torch.Tensor, picture: torch.Tensor | None) -> torch.Tensor:
        both = self.words(words)
        if picture is not None:
            both = both + self.tower(picture)
        return self.head(both).pow(2).mean()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    deepspeed.add_config_arguments(parser)
    return parser.parse_args()


def batch(step: int, rank: int) -> tuple[torch.Tensor, torch.Tensor | None]:
    text_alone = step == 4 and rank == 1
    return torch.randn(4, 32), None if text_alone else torch.randn(4, 48)


def main() -> None:
    args = arguments()
    torch.set_num_threads(1)
    deepspeed.init_distributed("gloo")
    model = Reader()
    engine, *_ = deepspeed.initialize(
        args=args, model=model, model_parameters=model.parameters(), config=SHAPE
    )
    for step in range(10):
        loss = engine(*batch(step, engine.global_rank))
        engine.backward(loss)
        engine.step()
        if engine.global_rank == 0:
            print(f"step {step}: {loss.item():.3f}", flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "deepspeed --num_gpus 3 --master_port $PORT train.py"
# world = "built"
# culprits = [[1]]
# culprits_by_stacks = [[]]
# waiting = [0, 2]
# steps = [
#   "training", "steady", "first_step", "first_backward", "first_batch", "first_collective",
#   "barrier", "first_barrier", "all_gather_single", "first_all_gather_single", "forward",
# ]
# after = [
#   "First step done", "First barrier done", "First backward done",
#   "First reduce_scatter_single done", "First all_gather_single done", "",
# ]
# own_code = true
# calls = ['distributed\.\w+', 'all_gather', 'forward', 'backward', 'train\.main', 'fetch']
# causes = ["rank-conditional-collective", "collective-mismatch", "gloo-mismatch"]
# limit = 300
# ///
