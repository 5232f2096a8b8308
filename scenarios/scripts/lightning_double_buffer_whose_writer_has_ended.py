"""A callback hands samples to a writer thread through two buffers, which they swap at a Barrier of
threads. On rank 1 of three the writer has ended by an exception: its folder is not there.
"""

import json
import threading
from pathlib import Path

import lightning as L
import torch
from torch.utils.data import DataLoader


class Small(L.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(16, 1)

    def training_step(self, batch: torch.Tensor, batch_idx: int) -> torch.Tensor:
        return self.layer(batch).pow(2).mean()

    def configure_optimizers(self) -> torch.optim.Optimizer:
        return torch.optim.SGD(self.parameters(), lr=0.01)


class Samples(L.Callback):
    """Writes each fourth loss, beside the training."""

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        kind = "odd" if trainer.global_rank % 2 else "even"
        Path("samples/even").mkdir(parents=True, exist_ok=True)
        self.file = Path("samples") / kind / f"{trainer.global_rank}.jsonl"
        self.filled: list[float] = []
        self.written: list[float] = []
        self.swap = threading.Barrier(2, action=self._exchange)
        threading.Thread(target=self._write, name="sample-writer", daemon=True).start()

    def _exchange(self) -> None:
        self.filled, self.written = [], self.filled

    def _write(self) -> None:
        while True:
            self.swap.wait()
            with self.file.open("a") as file:
                file.write(json.dumps(self.written) + "\n")

    def _hand_over(self) -> None:
        self.swap.wait()

    def on_train_batch_end(self, trainer, pl_module, outputs, batch, batch_idx) -> None:
        self.filled.append(outputs["loss"].item())
        if len(self.filled) == 4:
            self._hand_over()


def main() -> None:
    torch.set_num_threads(1)
    trainer = L.Trainer(
        accelerator="cpu",
        devices=3,
        strategy="ddp",
        max_steps=40,
        logger=False,
        enable_checkpointing=False,
        callbacks=[Samples()],
        enable_progress_bar=False,
    )
    trainer.fit(Small(), DataLoader(torch.randn(1024, 16), batch_size=4))


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["training", "steady", "first_batch", "fit", "first_backward", "first_step"]
# calls = ['Barrier', '_hand_over', 'swap', 'Condition\.wait', 'Trainer\.fit']
# causes = ["dead-producer"]
# says = ['sample-writer|thread|FileNotFoundError']
# ///
