"""What the watch costs a script of the user's own: its start-up, and a training step after it.

The same script without and with the variables that `hangbisect run` sets, in alternating order
(A B, B A, ...): a plain torch script under torchrun with 2 ranks, and a Lightning script of one
rank. Start-up is from the start of the command to the end of the first training step, as the script
measures it; a step is the median of those after the quiet point. Aim: at most 2 % or 150 ms slower,
whichever is larger; and a step not measurably slower.

    python benchmarks/watched_cost.py [--rounds 10] [--steps 2000]
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from hangbisect.rank.watched.command_environment import variables

LIMIT = 120.0  # seconds for one start
SHARE, LEAST = 0.02, 0.150  # of the start-up; seconds
QUIET = 20  # steps after which nothing is watched any more

_REPORT = """
def report(first, times):
    import json, os, statistics
    if os.environ.get("RANK", "0") == "0":
        with open("measured.json", "w") as file:
            json.dump({"first": first, "step": statistics.median(times)}, file)
"""
TORCH = (
    """
import sys, time
import torch, torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP
from torch.utils.data import DataLoader, TensorDataset
"""
    + _REPORT
    + """
def main():
    dist.init_process_group("gloo")
    model = DDP(torch.nn.Linear(8, 1))
    steps = int(sys.argv[1])
    rows = TensorDataset(torch.randn(2 * steps, 8), torch.randn(2 * steps, 1))
    data = DataLoader(rows, batch_size=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    ends = []
    for x, y in data:
        optimizer.zero_grad()
        ((model(x) - y) ** 2).mean().backward()
        optimizer.step()
        ends.append(time.time())
    report(ends[0], [b - a for a, b in zip(ends[20:], ends[21:])])
    dist.destroy_process_group()

if __name__ == "__main__":
    main()
"""
)
LIGHTNING = (
    """
import sys, time, logging, warnings
warnings.simplefilter("ignore")
import torch
import pytorch_lightning as pl
from torch.utils.data import DataLoader, TensorDataset
"""
    + _REPORT
    + """
class Model(pl.LightningModule):
    def __init__(self):
        super().__init__()
        self.net = torch.nn.Linear(8, 1)
        self.ends = []

    def training_step(self, batch, index):
        x, y = batch
        return ((self.net(x) - y) ** 2).mean()

    def on_train_batch_end(self, *args):
        self.ends.append(time.time())

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)

if __name__ == "__main__":
    steps = int(sys.argv[1])
    model = Model()
    rows = TensorDataset(torch.randn(2 * steps, 8), torch.randn(2 * steps, 1))
    data = DataLoader(rows, batch_size=2)
    pl.Trainer(accelerator="cpu", devices=1, max_steps=steps, logger=False,
               enable_checkpointing=False, enable_progress_bar=False).fit(model, data)
    ends = model.ends
    report(ends[0], [b - a for a, b in zip(ends[20:], ends[21:])])
"""
)
_TORCHRUN = str(Path(sys.executable).with_name("torchrun"))
SCRIPTS = {
    "torch": ((_TORCHRUN, "--standalone", "--nproc_per_node=2", "train.py"), TORCH),
    "Lightning": ((sys.executable, "train.py"), LIGHTNING),
}


def measured(name: str, steps: int, watched: bool) -> tuple[float, float]:
    """Return the seconds of the start-up, and of a step."""
    command, source = SCRIPTS[name]
    environ = {n: v for n, v in os.environ.items() if not n.startswith("HANGBISECT_")}
    environ |= {"OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base)
        (folder / "train.py").write_text(source, encoding="utf-8")
        if watched:
            environ |= variables({"run-dir": str(folder / "run")}, environ)
        began = time.time()
        subprocess.run(
            [*command, str(steps)],
            cwd=folder,
            env=environ,
            timeout=LIMIT,
            check=True,
            capture_output=True,
        )
        found = json.loads((folder / "measured.json").read_text(encoding="utf-8"))
    return found["first"] - began, found["step"]


def compare(name: str, rounds: int, steps: int) -> bool:
    """Print what it costs one script; return whether that is within the limits."""
    starts: dict[bool, list[float]] = {False: [], True: []}
    each: dict[bool, list[float]] = {False: [], True: []}
    for watched in (False, True):  # what is cold is read from the disk once
        measured(name, QUIET + 2, watched)
    for number in range(rounds):
        for watched in (False, True) if number % 2 else (True, False):
            start, step = measured(name, steps, watched)
            starts[watched].append(start)
            each[watched].append(step)
    plain, with_us = statistics.median(starts[False]), statistics.median(starts[True])
    more = statistics.median(b - a for a, b in zip(starts[False], starts[True], strict=True))
    steps_more = [b / a for a, b in zip(each[False], each[True], strict=True)]
    allowed = max(SHARE * plain, LEAST)
    step, times = statistics.median(each[False]), statistics.median(steps_more)
    print(
        f"{name:10} start-up {plain:.3f} s plain, {with_us:.3f} s watched: {more * 1000:+.0f} ms "
        f"in the median of {rounds} pairs (limit {allowed * 1000:.0f}); "
        f"a step {step * 1e6:.1f} us plain, x {times:.3f}",
        flush=True,
    )
    return more <= allowed


def main() -> int:
    """Print a line for each script; return 1 if the watch costs too much."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--steps", type=int, default=2000)
    options = parser.parse_args()
    fine = [compare(name, options.rounds, options.steps) for name in SCRIPTS]
    return int(not all(fine))


if __name__ == "__main__":
    sys.exit(main())
