"""The main process sorts its words with a program that waits for its input; the others wait."""

import subprocess

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader


def words() -> int:
    with subprocess.Popen(
        ["sort", "--unique"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as program:
        assert program.stdin is not None
        assert program.stdout is not None
        program.stdin.write(b"fox\ndog\n")
        program.stdin.flush()  # and it is never closed
        return len(program.stdout.read().splitlines())


def main() -> None:
    accelerator = Accelerator(cpu=True)
    with accelerator.main_process_first():
        size = words() if accelerator.is_main_process else 2
    model = torch.nn.Linear(16, size)
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
# --num_processes=2 --mixed_precision=no --dynamo_backend=no train.py"""
# culprits = [[0]]
# waiting = [1]
# steps = ["training", "process_group", "data_module", "prepare_data", "tokenizer", "accelerator"]
# after = ["Accelerator configured"]
# own_code = true
# calls = ["words", "read"]
# ///
