"""What `hangbisect.capture(module)` costs a call of forward.

    python benchmarks/capture_cost.py [--calls 2000] [--rounds 200]

The processor's time for a call of a module that does nothing, with and without it, in microseconds:
the least of the rounds, which take turns, and are short, as a busy machine disturbs long ones.
"off" is to stay below 2 µs more than "without". "on" keeps inputs and outputs of 4 x 512 numbers,
on the disk of the folder for temporary files: it is there to be seen.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

import hangbisect
import torch
from hangbisect.captures import capture_file
from hangbisect.captures.capture_file import CaptureLimits

MOST = 2.0  # microseconds


class Nothing(torch.nn.Module):
    """Returns its input."""

    def forward(self, rows: Any) -> Any:
        """Return `rows`."""
        return rows


def per_call(module: Any, calls: int) -> float:
    """Return the microseconds of a call."""
    rows = torch.ones(4, 512)
    began = time.process_time()
    for _ in range(calls):
        module(rows)
    return (time.process_time() - began) / calls * 1e6


def main() -> None:
    """Measure, and print a line each."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=2_000)
    parser.add_argument("--rounds", type=int, default=200)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        off = hangbisect.capture(Nothing(), folder=str(Path(folder) / "off"))
        rounds = [
            (per_call(Nothing(), args.calls), per_call(off, args.calls)) for _ in range(args.rounds)
        ]
        without, with_it = min(one for one, _ in rounds), min(two for _, two in rounds)
        more = with_it - without
        print(
            f"without {without:.2f} µs   off {with_it:.2f} µs   more {more:.2f} µs, at most {MOST}"
        )
        capture_file.turn_on(str(Path(folder) / "on"), CaptureLimits(captures=10**6))
        on = hangbisect.capture(Nothing(), folder=str(Path(folder) / "on"))
        print(f"on {per_call(on, 100):.0f} µs")


if __name__ == "__main__":
    main()
