"""notebook_launcher: process 0 hands its history back by a queue at its end, and the cell reads the
queue once the launcher has come back.

A process that has put something into a queue ends when all of it is in the pipe, which takes 64 KiB
and which nobody reads: process 0 is done and does not end, the launcher waits for it.
"""

import argparse
import multiprocessing
from typing import Any

import torch
from accelerate import Accelerator, notebook_launcher


def training_loop(history: Any, steps: int) -> None:
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(32, 4)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-3)
    data = torch.utils.data.TensorDataset(torch.randn(512, 32), torch.randint(4, (512,)))
    loader = torch.utils.data.DataLoader(data, batch_size=16, shuffle=True)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    rows = []
    for _, (features, labels) in zip(range(steps), loader, strict=False):
        logits = model(features)
        loss = torch.nn.functional.cross_entropy(logits, labels)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        gathered = accelerator.gather_for_metrics(logits)
        rows.append({"loss": loss.item(), "logits": gathered.detach().numpy().copy()})
    if accelerator.is_main_process:
        history.put({"rows": rows, "weights": [torch.randn(512, 128).numpy() for _ in range(4)]})
    accelerator.wait_for_everyone()
    accelerator.end_training()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", required=True)
    args = parser.parse_args()
    history = multiprocessing.get_context("fork").Queue()
    notebook_launcher(training_loop, (history, 8), num_processes=2, use_port=args.port)
    print(len(history.get()["rows"]), "steps", flush=True)

# /// case
# command = "python train.py --port $PORT"
# culprits = [[0]]
# waiting = [1]
# steps = ["exit", "teardown", "after_training", "training", "steady", "script", "barrier"]
# after = ["Barrier passed", "Training ended", "First steps trained", "First all_gather done", ""]
# own_code = true
# calls = ['_finalize_join', 'join_thread', 'join', 'put', '_feed', 'notebook_launcher']
# causes = ["pipe-unread", "child-at-exit", "thread-at-exit"]
# says = ['pipe']
# ///
