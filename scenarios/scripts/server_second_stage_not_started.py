"""A server with pipeline parallelism: its launcher starts a stage, waits until that says that it is
ready, and starts the next. Stage 0 says so once it has joined the group, of two.

Stage 1 was never started: the launcher waits for stage 0, and stage 0 for stage 1. Neither world
size nor stage 0 is at fault; the launcher waits too early.
"""

import os
import subprocess
import sys

STAGE = """
import os, sys
import torch.distributed as dist
stage, port = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=stage, world_size=2)
os.write(1, b"ready\\n")
sys.stdin.read()
"""


def start_stage(stage: int, port: str) -> subprocess.Popen[str]:
    words = [sys.executable, "-c", STAGE, str(stage), port]
    own = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    wait_until_ready(own)
    return own


def wait_until_ready(stage: subprocess.Popen[str]) -> None:
    assert stage.stdout is not None
    assert stage.stdout.readline() == "ready\n"


def main() -> None:
    stages = [start_stage(stage, sys.argv[1]) for stage in range(2)]
    print(f"{os.getpid()} serves with {len(stages)} stages", flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py $PORT"
# culprits = [[1], [-1]]
# absent = [1]
# waiting = [0]
# steps = ["process_group", "script"]
# after = ["", "torch imported"]
# own_code = true
# calls = ['init_process_group', 'readline', 'wait_until_ready', '^$']
# causes = ["rank-never-started", "deadlock", "started-one-by-one"]
# ///
