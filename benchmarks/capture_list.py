"""How long `hangbisect capture list` takes for 1,025 captured inputs, each with its outputs.

    python benchmarks/capture_list.py [--files 1025] [--rounds 5]

Makes them with the real thing (a batch of 8 x 512 token numbers, an attention mask, flags), starts
the real command, and prints the seconds of each start, until it ends. At most 1 s.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import hangbisect
import torch
from hangbisect.captures import capture_file
from hangbisect.captures.capture_file import CaptureLimits

PACKAGE = Path(hangbisect.__path__[0])


class Actor(torch.nn.Module):
    """Returns a score a row."""

    def forward(self, sequences: Any, attention_mask: Any, **flags: Any) -> Any:
        """Return the scores."""
        return (sequences * attention_mask).sum(1)


def main() -> None:
    """Make the captures, list them, print the times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--files", type=int, default=1025)
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        capture_file.turn_on(folder, CaptureLimits(captures=args.files))
        actor = hangbisect.capture(Actor(), folder=folder)
        for _ in range(args.files):
            tokens = torch.randint(0, 32000, (8, 512))
            mask = torch.ones(8, 512, dtype=torch.bool)
            actor(tokens, mask, return_logprobs=True, packed_seq_lens=[512] * 8)
        for _ in range(args.rounds):
            began = time.perf_counter()
            listed = subprocess.run(
                [sys.executable, PACKAGE, "capture", "list", folder],
                stdout=subprocess.PIPE, text=True, timeout=60, check=True,
            )  # fmt: skip
            seconds = time.perf_counter() - began
            print(f"{seconds:.2f} s for {len(listed.stdout.splitlines()) - 2:,}, at most 1")


if __name__ == "__main__":
    main()
