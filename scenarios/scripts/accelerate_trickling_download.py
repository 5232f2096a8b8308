"""The main process downloads its corpus from a server that sends it a little at a time."""

import argparse
import urllib.request

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--url", required=True)
    args = parser.parse_args()
    accelerator = Accelerator(cpu=True)
    if accelerator.is_main_process:
        urllib.request.urlretrieve(args.url, "corpus.txt")
    accelerator.wait_for_everyone()
    model = torch.nn.Linear(16, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(torch.randn(64, 16), batch_size=4)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        accelerator.backward(model(batch).pow(2).mean())
        optimizer.step()


if __name__ == "__main__":
    main()

# /// case
# command = """accelerate launch --multi_gpu --main_process_port=0 --num_machines=1 \
# --num_processes=2 --mixed_precision=no --dynamo_backend=no train.py --url $SERVICE/corpus.txt"""
# world = "trickling_service"
# outcome = "ok"
# ///
