"""Rank 1 unpacks its archive with unzip, which asks whether it may replace an old file.

Nobody types an answer. The others are in deepspeed.initialize.
"""

import argparse
import os
import subprocess
import zipfile
from pathlib import Path

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


def unpack(rank: int) -> Path:
    place = Path(f"scratch-{rank}")
    place.mkdir(exist_ok=True)
    with zipfile.ZipFile(place / "corpus.zip", "w") as archive:
        archive.writestr("corpus.txt", "all work and no play\n" * 100)
    if rank == 1:
        (place / "corpus.txt").write_text("left over from the run before\n")
    subprocess.run(["unzip", "-q", "corpus.zip"], cwd=place, check=True)
    return place / "corpus.txt"


def main() -> None:
    args = arguments()
    rank = int(os.environ["RANK"])
    lines = unpack(rank).read_text().splitlines()
    deepspeed.init_distributed("gloo")
    module = torch.nn.Linear(16, 1)
    engine, *_ = deepspeed.initialize(
        args=args, model=module, model_parameters=module.parameters(), config=SHAPE
    )
    for _ in range(min(4, len(lines))):
        engine.backward(engine(torch.randn(4, 16)).pow(2).mean())
        engine.step()


if __name__ == "__main__":
    main()

# /// case
# command = "deepspeed --num_gpus 3 --master_port $PORT train.py"
# world = "terminal_and_built"
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['subprocess\.run', 'unpack']
# causes = ["prompt", "child-program"]
# ///
