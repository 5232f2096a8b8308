"""Every rank asks a hub that never answers for its tokenizer."""

import argparse

import deepspeed
import torch
from transformers import AutoTokenizer

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
    tokenizer = AutoTokenizer.from_pretrained("people/small")
    deepspeed.init_distributed("gloo")
    module = torch.nn.Linear(16, len(tokenizer))
    engine, *_ = deepspeed.initialize(
        args=args, model=module, model_parameters=module.parameters(), config=SHAPE
    )
    engine.backward(engine(torch.randn(4, 16)).pow(2).mean())
    engine.step()


if __name__ == "__main__":
    main()

# /// case
# command = "deepspeed --num_gpus 2 --master_port $PORT train.py"
# world = "silent_hub"
# culprits = [[0, 1]]
# steps = ["tokenizer"]
# calls = ['AutoTokenizer\.from_pretrained']
# ///
