"""Rank 1 reads its shard from a service that never answers; the others are in initialize."""

import argparse
import urllib.request

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
    parser.add_argument("--shards", required=True)
    deepspeed.add_config_arguments(parser)
    return parser.parse_args()


def main() -> None:
    args = arguments()
    deepspeed.init_distributed("gloo")
    if args.local_rank == 1:
        urllib.request.urlopen(args.shards).read()
    module = torch.nn.Linear(16, 1)
    engine, *_ = deepspeed.initialize(
        args=args, model=module, model_parameters=module.parameters(), config=SHAPE
    )
    for _ in range(4):
        engine.backward(engine(torch.randn(4, 16)).pow(2).mean())
        engine.step()


if __name__ == "__main__":
    main()

# /// case
# command = "deepspeed --num_gpus 2 --master_port $PORT train.py --shards $SERVICE"
# world = "built_and_silent_service"
# culprits = [[1]]
# waiting = [0]
# steps = ["training", "process_group", "wrap", "data_module", "initialize", "ddp", "deepspeed"]
# after = ["DeepSpeed's group ready"]
# own_code = true
# calls = ['urllib\.request\.urlopen']
# ///
