"""How much sooner isolate is there than the same trials run each to a time limit or to their end.

A W&B server that accepts and never answers, 12 toggles, two ranks. First isolate, whose trials end
as soon as they have answered their question; then each of the settings that it tried again, watched
by nothing but `--timeout 60`, to its end. The second must take at least 4 times as long.

    python benchmarks/isolate_time.py [--confirm 3] [--max-steps 1000]

A job that does not hang trains for so many steps: about a minute on two idle cores, a short run of
what people start.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import hangbisect
from hangbisect.zoo.parts import servers

LEAST = 4.0
LIMIT = 1800.0  # seconds for all of one side
_PACKAGE = str(Path(hangbisect.__path__[0]))
_TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2")
# Twelve that change something about this job: W&B is to be found among them.
_TOGGLES = (
    *("wandb", "strategy", "make_logs_dir", "num_workers", "worker_start", "packing"),
    *("tokenizers_parallelism", "callbacks", "gradient_checkpointing", "attention"),
    *("torch_distributed_debug", "gloo_socket_ifname"),
)
_SET = ("--num-workers", "2", "--packing", "on", "--gradient-checkpointing", "on")


@contextlib.contextmanager
def silent_wandb() -> Iterator[dict[str, str]]:
    """Yield the environment of a job whose W&B server never answers."""
    with servers.silent_server() as port:
        url = f"http://127.0.0.1:{port}"
        detail = {"TORCH_DISTRIBUTED_DEBUG": "INFO", "WANDB_SILENT": "true"}
        yield {**os.environ, **detail, "WANDB_BASE_URL": url, "WANDB_API_KEY": "0" * 40}


def isolated(
    job: Sequence[str], environ: Mapping[str, str], folder: Path, confirm: int
) -> tuple[dict[str, Any], float]:
    """Return what isolate found, and how long it took."""
    began = time.monotonic()
    words = [sys.executable, _PACKAGE, "isolate", "--run-dir", "iso", "--confirm", str(confirm)]
    words += ["--only", ",".join(_TOGGLES), "--", *job]
    subprocess.run(words, cwd=folder, env=environ, stdin=subprocess.DEVNULL, timeout=LIMIT)
    took = time.monotonic() - began
    found: dict[str, Any] = json.loads((folder / "iso" / "isolation.json").read_text())
    return found, took


def to_the_limit(
    trial: Mapping[str, Any], environ: Mapping[str, str], folder: Path
) -> tuple[float, str]:
    """Return how long the same start takes when only --timeout 60 ends it, and how it ended."""
    run_dir = folder / f"plain-{trial['number']}"
    words = [*trial["command"], "--timeout", "60", "--stall", "3600", "--run-dir", str(run_dir)]
    began = time.monotonic()
    subprocess.run(
        words,
        cwd=folder,
        env={**environ, **trial["environment"]},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        timeout=LIMIT,
    )
    took = time.monotonic() - began
    return took, json.loads((run_dir / "verdict.json").read_text())["outcome"]


def main() -> int:
    """Print both times and the ratio; return 1 if it is too small or the answer wrong."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--confirm", type=int, default=3)
    parser.add_argument("--max-steps", type=int, default=1000)
    options = parser.parse_args()
    job = (*_TORCHRUN, _PACKAGE, "--max-steps", str(options.max_steps), *_SET)
    with tempfile.TemporaryDirectory(prefix="iso-") as here, silent_wandb() as environ:
        folder = Path(here)
        found, ours = isolated(job, environ, folder, options.confirm)
        answer = {one["toggle"]: one["value"] for one in found["changes"]}
        print(f"{found['outcome']}: {answer}, {len(found['trials'])} starts, {ours:.0f} s")
        tried = len({name for trial in found["trials"] for name in trial["setting"]})
        theirs = 0.0
        for trial in found["trials"]:
            took, outcome = to_the_limit(trial, environ, folder)
            theirs += took
            print(
                f"  {trial['number']:2} {trial['result']:5} {trial['seconds']:6.1f} s   "
                f"to its end: {outcome:5} {took:6.1f} s   {len(trial['setting'])} toggles set",
                flush=True,
            )
    ratio = theirs / ours
    print(
        f"{tried} toggles, isolate {ours:.0f} s, each to its end {theirs:.0f} s: {ratio:.1f} times"
    )
    return int(ratio < LEAST or found["outcome"] != "isolated" or "wandb" not in answer)


if __name__ == "__main__":
    raise SystemExit(main())
