"""Healthy and slow: after its first epoch rank 1 of three waits for a future; the thread behind it
waits for a shell, and the shell for a program that packs what was written, at work all the while.

Ranks 0 and 2 are at the barrier that comes next.
"""

import argparse
import concurrent.futures
import os
import shlex
import sys

import lightning as L
import torch
from torch.utils.data import DataLoader

PACKS = """
import hashlib, time
end = time.monotonic() + {seconds}
told = b""
while time.monotonic() < end:
    told = hashlib.pbkdf2_hmac("sha256", told, b"salt", 400_000)
"""


class Small(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(16, 1)

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        return self.layer(batch).pow(2).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Archive(L.Callback):
    def __init__(self, seconds: float) -> None:
        self.line = (
            f"{shlex.quote(sys.executable)} -c {shlex.quote(PACKS.format(seconds=seconds))}; true"
        )
        self.pool = concurrent.futures.ThreadPoolExecutor(1, "archive")

    def _pack(self) -> int:
        pid = os.spawnvp(os.P_NOWAIT, "sh", ["sh", "-c", self.line])
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.current_epoch == 0:
            if trainer.global_rank == 1:
                concurrent.futures.wait([self.pool.submit(self._pack)])
            trainer.strategy.barrier("archived")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    torch.set_num_threads(1)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_epochs=2,
        logger=False,
        enable_checkpointing=False,
        callbacks=[Archive(args.seconds)],
        enable_progress_bar=False,
    )
    trainer.fit(Small(), DataLoader(torch.randn(96, 16), batch_size=4))


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 50.0
# limit = 240.0
# ///
