"""A rank that enters the known meetings of libraries, one after another, as it is told.

    RANK=0 WORLD_SIZE=2 ... python benchmarks/canary_rank.py     started by canaries.py

It reads lines from stdin: `ready NAME` has it prepare a meeting, together with the other rank,
`go` has it enter. It answers with a line each: `ready`, `done`, or `failed` and why. Between two
lines it waits in read(), which is no call of any library.

The meetings: canary_torch.py, canary_trainers.py, canary_lightning.py, canary_services.py.
"""

from __future__ import annotations

import os
import sys
import traceback
from collections.abc import Iterator

import canary_lightning
import canary_services
import canary_torch
import canary_trainers
from canary_meetings import MEETINGS

OF_LIBRARIES = (canary_torch, canary_trainers, canary_lightning, canary_services)


def _answer(text: str) -> None:
    os.write(_OUT, f"{text}\n".encode())


_OUT = os.dup(1)  # what libraries print is not mixed with answers


def main() -> int:
    """Do as the lines on stdin say, until they end."""
    os.dup2(2, 1)
    entered: Iterator[None] = iter(())
    for line in sys.stdin:
        word, _, name = line.strip().partition(" ")
        try:
            if word == "ready":
                entered = MEETINGS[name]()
                next(entered)
                _answer("ready")
            else:
                next(entered, None)
                _answer("done")
        except BaseException as error:
            traceback.print_exc()
            _answer(f"failed {type(error).__name__}: {error}".replace("\n", " "))
    return 0


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)
