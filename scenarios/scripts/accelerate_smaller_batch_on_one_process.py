"""find_executable_batch_size: process 2 of four runs out of memory, and starts anew with less.

Its model is prepared again, which talks to all, and these are in the backward of the next step.
"""

import torch
from accelerate import Accelerator
from accelerate.utils import find_executable_batch_size
from torch.utils.data import DataLoader

LONGEST = 1 << 46  # numbers of the attention of the longest document, all heads at once


def attend(accelerator: Accelerator, step: int, batch: torch.Tensor) -> torch.Tensor:
    """Return the batch; a document of process 2 is far too long for its memory."""
    if accelerator.process_index == 2 and step == 3 and len(batch) > 8:
        torch.empty(LONGEST)
    return batch


def main() -> None:
    torch.set_num_threads(1)
    accelerator = Accelerator(cpu=True)
    documents = torch.randn(2048, 16)

    @find_executable_batch_size(starting_batch_size=16)
    def train(batch_size: int) -> None:
        accelerator.free_memory()
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(16, 64), torch.nn.Linear(64, 1))
        optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
        loader = DataLoader(documents, batch_size=batch_size)
        model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
        for step, batch in enumerate(loader):
            loss = model(attend(accelerator, step, batch)).pow(2).mean()
            accelerator.backward(loss)
            optimizer.step()
            optimizer.zero_grad()
            if step % 4 == 3:
                mean = accelerator.reduce(loss.detach(), reduction="mean").item()
                accelerator.print(f"step {step} of batches of {batch_size}: {mean:.4f}", flush=True)

    train()
    accelerator.end_training()


if __name__ == "__main__":
    main()

# /// case
# command = """accelerate launch --multi_gpu --main_process_port=0 --num_machines=1 \
# --num_processes=4 --mixed_precision=no --dynamo_backend=no train.py"""
# culprits = [[2]]
# culprits_by_stacks = [[]]
# waiting = [0, 1, 3]
# steps = [
#   "training", "steady", "first_step", "first_backward", "first_batch", "first_collective",
#   "wrap", "ddp_wrap", "prepare",
# ]
# after = ["First step done", "First batch done", "First backward done", ""]
# own_code = true
# calls = ['prepare', 'DistributedDataParallel', 'train\.']
# causes = [
#   "rank-conditional-collective", "collective-mismatch", "gloo-mismatch", "ddp-on-some-ranks",
# ]
# ///
