"""A killed build of DeepSpeed's own extension left its lock: every rank waits in its just-in-time
build (deepspeedai/DeepSpeedExamples#302).
"""

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
    engine.backward(engine(torch.randn(4, 16)).pow(2).mean())
    engine.step()


if __name__ == "__main__":
    main()

# /// case
# command = "deepspeed --num_gpus 2 --master_port $PORT train.py"
# world = "stale_build_lock"
# culprits = [[0, 1]]
# steps = [
#   "model", "training", "process_group", "wrap", "initialize", "extension", "ddp", "deepspeed",
# ]
# own_code = true
# calls = ['cpp_extension\.load', "jit_load"]
# ///
