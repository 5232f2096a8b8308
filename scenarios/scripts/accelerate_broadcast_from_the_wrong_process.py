"""Process 1 believes that the vocabulary comes from process 2, all others that it comes from 0.

It found an old note of where the vocabulary lay and passes that to `broadcast_object_list`.
"""

import json
from pathlib import Path
from typing import Any

import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list
from torch.utils.data import DataLoader


def owner(process: int) -> int:
    note = Path(f"cache-{process}.json")
    if note.exists():
        return int(json.loads(note.read_text())["owner"])
    return 0


def main() -> None:
    accelerator = Accelerator(cpu=True)
    vocabulary: list[Any] = [None]
    if accelerator.is_main_process:
        vocabulary = [{f"word{number}": number for number in range(2000)}]
    broadcast_object_list(vocabulary, from_process=owner(accelerator.process_index))
    model = torch.nn.Embedding(len(vocabulary[0]), 8)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    loader = DataLoader(torch.arange(256), batch_size=8)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for batch in loader:
        accelerator.backward(model(batch).pow(2).mean())
        optimizer.step()
        optimizer.zero_grad()


if __name__ == "__main__":
    main()

# /// case
# command = """accelerate launch --multi_gpu --main_process_port=0 --num_machines=1 \
# --num_processes=4 --mixed_precision=no --dynamo_backend=no train.py"""
# culprits = [[1]]
# culprits_by_stacks = [[0, 1, 2, 3]]
# waiting = [0, 2, 3]
# steps = [
#   "broadcast", "broadcast_object_list", "first_broadcast", "first_broadcast_object_list",
#   "prepare", "ddp", "wrap",
# ]
# own_code = true
# calls = ['distributed\.\w+', "broadcast_object_list", "prepare"]
# causes = ["collective-mismatch", "gloo-mismatch"]
# [files]
# "cache-1.json" = '{"owner": 2}'
# ///
