"""What `--pipeline replay` costs beside the forwards that it repeats.

    python benchmarks/replay_cost.py [--inputs 200] [--forward 0.02] [--rounds 5]

A module whose forward takes about --forward seconds on one thread is captured --inputs times, by
the real hooks. Then, in turns, the real command replays it, and a plain loop of twenty lines does
what anybody would write: read the file, call the module, compare with what was captured.

Printed are medians of the rounds: the forward in both, and what each takes beside the forwards, for
an input and as a share of a forward. Ours is to stay below 2 % more than the plain loop.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

import jobs

MOST = 0.02
_MODULE = """
import time

import torch

WIDTH, LENGTH = 256, 512


class Layers(torch.nn.Module):
    def __init__(self, layers: int) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.layers = torch.nn.ModuleList(torch.nn.Linear(WIDTH, WIDTH) for _ in range(layers))

    def forward(self, hidden_states, attention_mask=None):
        for layer in self.layers:
            hidden_states = torch.tanh(layer(hidden_states))
        return hidden_states


def build(given=None):
    import os

    torch.set_num_threads(1)
    return Layers(int(os.environ["LAYERS"])).eval()


def timed(module, times=20):
    rows = torch.randn(1, LENGTH, WIDTH)
    took = []
    with torch.no_grad():
        for _ in range(times):
            began = time.perf_counter()
            module(rows)
            took.append(time.perf_counter() - began)
    return sorted(took)[times // 2]
"""
_CAPTURE = """
import os, sys
import torch
torch.set_num_threads(1)
from layers import LENGTH, WIDTH, Layers, build, timed

layers = max(1, round(float(sys.argv[1]) / (timed(Layers(20).eval()) / 20)))
os.environ["LAYERS"] = str(layers)
import hangbisect
from hangbisect.captures.capture_file import CaptureLimits, turn_on

turn_on("captures", CaptureLimits(captures=10**6))
module = hangbisect.capture(build())
with torch.no_grad():
    for _ in range(int(sys.argv[2])):
        rows = torch.randn(1, LENGTH, WIDTH)
        module(rows, attention_mask=torch.ones(1, LENGTH, dtype=torch.long))
print(layers)
"""
_PLAIN = """
import glob, json, time
import torch
from layers import build
from safetensors.torch import load_file

module = build()
forwards, largest = [], 0.0
began = time.perf_counter()
with torch.no_grad():
    for file in sorted(glob.glob("captures/*.inputs.safetensors")):
        given = load_file(file)
        at = time.perf_counter()
        output = module(given["0"], attention_mask=given["1"])
        forwards.append(time.perf_counter() - at)
        before = load_file(file.replace(".inputs.", ".outputs."))["0"]
        largest = max(largest, float((output.double() - before.double()).abs().max()))
        print(file, f"{forwards[-1]:.3f} s", largest, file=__import__("sys").stderr)
seconds = time.perf_counter() - began
print(json.dumps({"seconds": seconds, "forwards": forwards}))
"""


def plain(folder: Path, environ: dict[str, str]) -> tuple[float, Sequence[float]]:
    """Return the seconds of the plain loop, and of each forward in it."""
    said = json.loads(_run([sys.executable, "plain.py"], folder, environ))
    return said["seconds"], said["forwards"]


def ours(folder: Path, environ: dict[str, str], words: Sequence[str]) -> tuple[float, list[float]]:
    """Return the seconds of all inputs in the real command, and of each forward in it."""
    command = [sys.executable, "-m", "bisect", "--pipeline", "replay", "--run-dir", "run"]
    _run([*command, "--use", "module=layers:build", *words], folder, environ)
    said = json.loads((folder / "run" / "logs" / "replay-rank0.json").read_text())
    return said["seconds"], [one["forward_s"] for one in said["inputs"]]


def _run(command: Sequence[str], folder: Path, environ: dict[str, str]) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environ, capture_output=True, text=True, timeout=600
    )
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}:\n{done.stdout[-2000:]}\n{done.stderr[-4000:]}")
    return done.stdout


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--inputs", type=int, default=200)
    parser.add_argument("--forward", type=float, default=0.02)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        for name, text in (("layers", _MODULE), ("take", _CAPTURE), ("plain", _PLAIN)):
            (folder / f"{name}.py").write_text(text)
        environ = {**jobs.clean_environ(), "OMP_NUM_THREADS": "1", "PYTHONPATH": str(folder)}
        asked = [sys.executable, "take.py", str(args.forward), str(args.inputs)]
        environ["LAYERS"] = _run(asked, folder, environ).strip()
        ways = {
            "a plain loop": lambda: plain(folder, environ),
            "replay": lambda: ours(folder, environ, ()),
            "replay --quiet": lambda: ours(folder, environ, ("--quiet",)),
        }
        found: dict[str, list[tuple[float, float]]] = {name: [] for name in ways}
        for _ in range(args.rounds):
            for name, measure in ways.items():
                seconds, forwards = measure()
                beside = (seconds - sum(forwards)) / len(forwards)
                found[name].append((statistics.median(forwards), beside))
        print(f"{args.inputs} inputs, {os.cpu_count()} cores, {args.rounds} rounds, medians")
        widths = (16, 12, 22, 12)
        print(jobs.wide(("", "forward ms", "beside it, each, ms", "of a forward"), widths))
        base = statistics.median(beside for _, beside in found["a plain loop"])
        for name, rounds in found.items():
            forward = statistics.median(one for one, _ in rounds)
            beside = statistics.median(two for _, two in rounds)
            row = (name, f"{forward * 1e3:.2f}", f"{beside * 1e3:.3f}", f"{beside / forward:.2%}")
            print(jobs.wide(row, widths))
            if name == "replay":
                more = (beside - base) / forward
                print(f"  more than the plain loop: {more:.2%} of a forward, at most {MOST:.0%}")


if __name__ == "__main__":
    main()
