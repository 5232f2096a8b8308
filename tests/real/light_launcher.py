"""A launcher without torch: it gives each rank its number, and starts within milliseconds.

torchrun itself imports torch, which takes longer than most of the scripts that it starts here. It
is used where a test is about it.
"""

from __future__ import annotations

import socket
import sys
from pathlib import Path

# Its own options are left out; as torchrun it has the status of a rank that failed.
LAUNCHER = """#!/bin/bash
export WORLD_SIZE={ranks} LOCAL_WORLD_SIZE={ranks} MASTER_ADDR=127.0.0.1 MASTER_PORT={port}
while [[ $1 == --* ]]; do shift; done
ranks=(); status=0
for rank in $(seq 0 $((WORLD_SIZE - 1))); do
    RANK=$rank LOCAL_RANK=$rank OMP_NUM_THREADS=1 {python} "$@" & ranks+=($!)
done
for one in "${{ranks[@]}}"; do wait "$one" || status=$?; done
exit $status
"""


def write_launcher(folder: Path, ranks: int = 2) -> str:
    """Write a launcher of so many ranks into a folder, as `torchrun`, and return its path: what
    follows it in a command are its options and the arguments of Python.
    """
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    launcher = folder / "torchrun"
    launcher.write_text(LAUNCHER.format(ranks=ranks, port=port, python=sys.executable))
    launcher.chmod(0o755)
    return str(launcher)
