"""Is given an argument that it does not have."""

import argparse

import safetensors

parser = argparse.ArgumentParser(prog="train", description="Trains.")
parser.add_argument("--rate", type=float, default=0.1)
parser.add_argument("words", nargs="*")
print(parser.parse_args(), safetensors.__name__)

# /// case
# command = "python train.py --rte 2"
# outcome = "ok"
# status = 2
# ///
