"""Rank 0 alone saves a checkpoint: save_checkpoint wants every rank."""

import argparse

import deepspeed
import torch

SHAPE = {
    "train_micro_batch_size_per_gpu": 4,
    "optimizer": {"type": "SGD", "params": {"lr": 0.01}},
    "zero_optimization": {"stage": 0},
}


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--local_rank", type=int, default=-1)
    deepspeed.add_config_arguments(parser)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    deepspeed.init_distributed("gloo")
    module = torch.nn.Linear(16, 1)
    engine, *_ = deepspeed.initialize(
        args=args, model=module, model_parameters=module.parameters(), config=SHAPE
    )
    for step in range(4):
        engine.backward(engine(torch.randn(4, 16)).pow(2).mean())
        engine.step()
        if step == 1 and engine.global_rank == 0:
            engine.save_checkpoint("checkpoints")


if __name__ == "__main__":
    main()

# /// case
# command = "deepspeed --num_gpus 2 --master_port $PORT train.py"
# world = "built"
# culprits = [[0]]
# culprits_by_stacks = [[0, 1]]
# steps = [
#   "training", "first_batch", "first_backward", "first_step", "steady", "barrier",
#   "all_reduce", "first_barrier", "first_all_reduce",
# ]
# own_code = true
# calls = ['distributed\.\w+', "save_checkpoint", "barrier", "backward", "comm"]
# ///
