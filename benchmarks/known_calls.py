"""Says which rows of the table of known calls a real script reaches, and why not the others.

Starts every_known_call.py under `hangbisect run` with two ranks by torchrun, and as a plain
`python`. What is not installed is not reached (mlflow, tensorboardX, mpi4py, peft).

    python benchmarks/known_calls.py
"""

from __future__ import annotations

import importlib.util
import json
import subprocess
import sys
import tempfile
from pathlib import Path

from hangbisect.rank.watched.known_calls import KNOWN_CALLS, KnownCall
from own_scripts import HANGBISECT

SCRIPT = Path(__file__).with_name("every_known_call.py")
LIMIT = 1200.0  # seconds for a start
TORCHRUN = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc_per_node=2")
STARTS = (TORCHRUN, (sys.executable,))
WHY = {  # by a part of `where`
    "strategies.fsdp": "FSDPStrategy wants a GPU",
    "strategies.deepspeed": "DeepSpeedStrategy wants a GPU",
    "strategies.model_parallel": "ModelParallelStrategy wants a GPU",
    "_coalesced": "gloo has no such operation",
    "split_group": "only NCCL can split a group",
    "shrink_group": "only NCCL can shrink a group",
    "_single": "gloo has no such operation",
    "_all_gather_base": "an old name of all_gather_into_tensor",
}


def told(command: tuple[str, ...]) -> set[str]:
    """Return the calls that a start of the script told of."""
    with tempfile.TemporaryDirectory() as folder:
        ours = [*HANGBISECT, "run", "--keep-watching", "--stall", "300", "--run-dir", folder, "--"]
        subprocess.run([*ours, *command, str(SCRIPT)], timeout=LIMIT, stdout=subprocess.DEVNULL)
        lines = Path(folder, "events.jsonl").read_text(encoding="utf-8").splitlines()
    begun = (event for event in map(json.loads, lines) if event["t"] == "begin")
    return {str(event["call"]) for event in begun}


def why_not(row: KnownCall) -> str:
    """Return why a row is not reached, "?" where nobody knows."""
    package = row.module.partition(".")[0]
    if importlib.util.find_spec(package) is None:
        return f"{package} is not installed"
    return next((why for part, why in WHY.items() if part in row.where), "?")


def main() -> int:
    """Print the rows that were not reached; return 1 if for one of them there is no reason."""
    reached = set().union(*map(told, STARTS))
    missing = [row for row in KNOWN_CALLS if row.call not in reached]
    for row in missing:
        print(f"{row.call:70} {why_not(row)}")
    print(f"{len(KNOWN_CALLS) - len(missing)} of {len(KNOWN_CALLS)} rows reached")
    return int(any(why_not(row) == "?" for row in missing))


if __name__ == "__main__":
    sys.exit(main())
