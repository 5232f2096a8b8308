"""DeepSpeed's getting started: initialize, and its three lines of training."""

import argparse

import deepspeed
import torch


def main() -> None:
    parser = argparse.ArgumentParser(description="My training script.")
    parser.add_argument("--local_rank", type=int, default=-1)
    parser = deepspeed.add_config_arguments(parser)
    args = parser.parse_args()
    deepspeed.init_distributed("gloo")
    model = torch.nn.Linear(16, 1)
    engine, *_ = deepspeed.initialize(
        args=args,
        model=model,
        model_parameters=model.parameters(),
        config={
            "train_micro_batch_size_per_gpu": 4,
            "optimizer": {"type": "SGD", "params": {"lr": 0.01}},
        },
    )
    for _ in range(6):
        loss = engine(torch.randn(4, 16)).pow(2).mean()
        engine.backward(loss)
        engine.step()
    print("steps", engine.global_steps)


if __name__ == "__main__":
    main()

# /// case
# command = "deepspeed --num_gpus 2 --master_port $PORT train.py"
# world = "built"
# outcome = "ok"
# ///
