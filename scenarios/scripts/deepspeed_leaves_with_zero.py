"""Rank 1 catches its own exception and returns from main, before the group is made."""

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
    try:
        layers = {0: 1}[args.local_rank]
    except KeyError as error:
        print("no shape for rank", error)
        return
    deepspeed.init_distributed("gloo")
    module = torch.nn.Linear(16, layers)
    engine, *_ = deepspeed.initialize(
        args=args, model=module, model_parameters=module.parameters(), config=SHAPE
    )
    engine.backward(engine(torch.randn(4, 16)).pow(2).mean())
    engine.step()


if __name__ == "__main__":
    main()

# /// case
# command = "deepspeed --num_gpus 2 --master_port $PORT train.py"
# world = "built"
# culprits = [[1]]
# waiting = [0]
# steps = [
#   "arguments", "training", "process_group", "wrap", "initialize", "model", "ddp",
#   "deepspeed",
# ]
# after = ["Args parsed"]
# own_code = true
# calls = [".*"]
# ///
