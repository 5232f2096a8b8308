"""What `hangbisect run` costs the start of eight programs with short imports, and their end.

Each is started plainly and below `run`, alternating (A B, B A, ...). A start is from the start of
the command to its mark, "training started" (the first optimizer step, or the program's own first
word); the end is from the program's last word to the end of the command. Aim: the median of the
differences at most 2 % of a plain start or 150 ms, whichever is larger. Printed with it is the
interval that holds the true median in 95 of 100 series: starts of torch differ by 0.3 s and more.

    python benchmarks/start_up.py [--pairs 20] [NAME ...]
"""

from __future__ import annotations

import argparse
import compileall
import importlib.util
import math
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import hangbisect
import jobs

LIMIT = 180.0  # seconds for one start
SHARE, LEAST = 0.02, 0.150  # of the start; seconds
HANGBISECT = str(Path(sys.executable).with_name("hangbisect"))
_TORCHRUN = str(Path(sys.executable).with_name("torchrun"))
_MARKS = """
import os, time
def mark(name):
    if os.environ.get("RANK", "0") == "0":
        with open(name, "a") as file:
            print(time.time(), file=file)
"""
_ARGPARSE = """
import argparse
parser = argparse.ArgumentParser()
parser.add_argument("--lr", type=float, default=0.1)
print(parser.parse_args().lr)
mark("started")
mark("ended")
"""
_NO_TORCH = """
import json, multiprocessing, socket, subprocess, threading
def work(number, pipe):
    pipe.send(number * number)
if __name__ == "__main__":
    ends = []
    for number in range(2):
        ours, theirs = multiprocessing.Pipe()
        multiprocessing.Process(target=work, args=(number, theirs)).start()
        ends.append(ours)
    print([one.recv() for one in ends])
    mark("started")
    mark("ended")
"""
_LOOP = """
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(12):
        optimizer.zero_grad()
        loss = model(torch.randn(4, 8)).square().mean()
        {backward}(loss)
        optimizer.step()
        if not step:
            mark("started")
    mark("ended")
"""
_BACKWARD = "torch.autograd.backward"
_DDP = (
    "import torch, torch.distributed as dist\n"
    "from torch.nn.parallel import DistributedDataParallel as DDP\n"
    "if __name__ == '__main__':\n"
    "    dist.init_process_group('gloo')\n"
    "    model = DDP(torch.nn.Linear(8, 1))\n"
    + _LOOP.format(backward=_BACKWARD)
    + "    dist.destroy_process_group()\n"
)
_GPT = """
import math, torch
from torch import nn
from torch.nn import functional as F
class Block(nn.Module):
    def __init__(self, width=32, heads=4):
        super().__init__()
        self.heads, self.norm, self.norm2 = heads, nn.LayerNorm(width), nn.LayerNorm(width)
        self.attn, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        wide = 4 * width
        self.mlp = nn.Sequential(nn.Linear(width, wide), nn.GELU(), nn.Linear(wide, width))
    def forward(self, x):
        rows, length, width = x.shape
        parts = self.attn(self.norm(x)).split(width, dim=2)
        q, k, v = (one.view(rows, length, self.heads, -1).transpose(1, 2) for one in parts)
        seen = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(seen.transpose(1, 2).reshape(rows, length, width))
        return x + self.mlp(self.norm2(x))
class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.embed, self.head = nn.Embedding(64, 32), nn.Linear(32, 64)
        self.blocks = nn.Sequential(*(Block() for _ in range(2)))
    def forward(self, tokens):
        return self.head(self.blocks(self.embed(tokens)))
if __name__ == "__main__":
    model = GPT()
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(12):
        tokens = torch.randint(64, (4, 17))
        logits = model(tokens[:, :-1])
        loss = F.cross_entropy(logits.reshape(-1, 64), tokens[:, 1:].reshape(-1))
        optimizer.zero_grad(set_to_none=True)
        loss.backward()
        optimizer.step()
        if not step:
            mark("started")
    mark("ended")
"""
_ACCELERATE = (
    "import torch\nfrom accelerate import Accelerator\n"
    "if __name__ == '__main__':\n"
    "    accelerator = Accelerator(cpu=True)\n"
    "    model = accelerator.prepare(torch.nn.Linear(8, 1))\n"
    + _LOOP.format(backward="accelerator.backward")
)
_FABRIC = (
    "import torch\nfrom lightning_fabric import Fabric\n"
    "if __name__ == '__main__':\n"
    "    fabric = Fabric(accelerator='cpu', devices=1)\n"
    "    fabric.launch()\n"
    "    model = fabric.setup(torch.nn.Linear(8, 1))\n" + _LOOP.format(backward="fabric.backward")
)
_TRANSFORMERS = """
import torch
from transformers import GPT2Config, GPT2LMHeadModel
if __name__ == "__main__":
    model = GPT2LMHeadModel(GPT2Config(n_layer=2, n_head=2, n_embd=32, vocab_size=64))
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(12):
        tokens = torch.randint(64, (2, 16))
        model(tokens, labels=tokens).loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if not step:
            mark("started")
    mark("ended")
"""
_SHELL = "date +%s.%N > started; seq 100000 | sort -rn | head -n 1; date +%s.%N > ended"


@dataclass(frozen=True)
class Program:
    """What is started: `needs` is a package that must be there."""

    command: tuple[str, ...]
    source: str
    needs: str = ""


_PYTHON = (sys.executable, "train.py")
PROGRAMS = {
    "argparse": Program(_PYTHON, _ARGPARSE),
    "processes": Program(_PYTHON, _NO_TORCH),
    "shell": Program(("bash", "-c", _SHELL), ""),
    "gpt": Program(_PYTHON, _GPT, "torch"),
    "ddp": Program((_TORCHRUN, "--standalone", "--nproc_per_node=2", "train.py"), _DDP, "torch"),
    "accelerate": Program(_PYTHON, _ACCELERATE, "accelerate"),
    "fabric": Program(_PYTHON, _FABRIC, "lightning_fabric"),
    "transformers": Program(_PYTHON, _TRANSFORMERS, "transformers"),
}


@dataclass(frozen=True)
class Times:
    """Of one start, in seconds."""

    start: float  # from the command's start to the mark
    end: float  # from the program's last word to the command's end


def measured(program: Program, watched: bool) -> Times:
    """Start it once. Raises CalledProcessError if it fails."""
    environ = {**jobs.clean_environ(), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    with tempfile.TemporaryDirectory() as base:
        folder = Path(base)
        (folder / "train.py").write_text(_MARKS + program.source, encoding="utf-8")
        ours = (HANGBISECT, "run", "--run-dir", str(folder / "run"), "--") if watched else ()
        began = time.time()
        done = subprocess.run(
            [*ours, *program.command],
            cwd=folder,
            env={**environ, "HOME": os.environ.get("HOME", base)},
            timeout=LIMIT,
            check=False,
            capture_output=True,
            text=True,
        )
        over = time.time()
        if done.returncode:
            print(f"{done.args} ended with status {done.returncode}:\n{done.stderr}")
        done.check_returncode()
        started, ended = (float((folder / name).read_text()) for name in ("started", "ended"))
    return Times(started - began, over - ended)


def repeated(program: Program, watched: bool) -> Times:
    """Start it, again if it fails: of 60 plain starts of a torchrun one ended by SIGABRT by itself.
    Each failure is printed. Raises CalledProcessError if it fails three times.
    """
    for _ in range(2):
        try:
            return measured(program, watched)
        except subprocess.CalledProcessError:
            print("  started again:", "below run" if watched else "plain", flush=True)
    return measured(program, watched)


def find_interval(values: Sequence[float]) -> tuple[float, float]:
    """Return between which of them the median of all such values lies, in 95 of 100 series.

    Of n values k lie below the median as heads fall in n throws of a coin, whatever they are.
    """
    ordered, n = sorted(values), len(values)
    below, outside = 0.0, 0
    while (below := below + math.comb(n, outside) / 2**n) <= 0.025:
        outside += 1
    return ordered[max(0, outside - 1)], ordered[min(n - 1, n - outside)]


def compare(name: str, pairs: int) -> bool:
    """Print what it costs one program; return whether that is within the limits."""
    program = PROGRAMS[name]
    found: dict[bool, list[Times]] = {False: [], True: []}
    for watched in (False, True):  # what is cold is read from the disk once
        repeated(program, watched)
    for number in range(pairs):
        for watched in (False, True) if number % 2 else (True, False):
            found[watched].append(repeated(program, watched))
    both = [*zip(found[False], found[True], strict=True)]
    plain = statistics.median(one.start for one in found[False])
    differences = [b.start - a.start for a, b in both]
    more = statistics.median(differences)
    low, high = find_interval(differences)
    times = statistics.median(b.start / a.start for a, b in both)
    end = statistics.median(b.end - a.end for a, b in both)
    met = more <= max(SHARE * plain, LEAST)
    print(
        f"{name:13} {plain:7.3f} s plain  x {times:.3f}  {more * 1000:+5.0f} ms "
        f"({low * 1000:+.0f} to {high * 1000:+.0f})  "
        f"its end {end * 1000:+5.0f} ms  {'met' if met else 'NOT MET'}",
        flush=True,
    )
    return met


def main() -> int:
    """Print a line for each program; return 1 if the watch costs one too much."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=", ".join(PROGRAMS))
    parser.add_argument("--pairs", type=int, default=20)
    options = parser.parse_args()
    jobs.heed_signals()
    # As pip leaves it: a checkout may be where no Python writes what it has compiled.
    compileall.compile_dir(hangbisect.__path__[0], quiet=1)
    fine = []
    for name in options.names or PROGRAMS:
        needs = PROGRAMS[name].needs
        if needs and importlib.util.find_spec(needs) is None:
            print(f"{name:13} needs {needs}")
            continue
        fine.append(compare(name, options.pairs))
    print(
        f"{sum(fine)} of {len(fine)} within {SHARE:.0%} or {LEAST * 1000:.0f} ms, in the median of "
        f"{options.pairs} pairs"
    )
    return int(not all(fine))


if __name__ == "__main__":
    raise SystemExit(main())
