"""Healthy: a supervisor starts three ranks and starts anew what ends with an error; rank 1 is
preempted once, and loads its checkpoint for long before it joins the others in the rendezvous.
"""

import argparse
import os
import subprocess
import sys
import time

WORLD = 3


def start(rank: int, port: str, seconds: str) -> subprocess.Popen[bytes]:
    own = {
        "RANK": str(rank),
        "WORLD_SIZE": str(WORLD),
        "LOCAL_RANK": str(rank),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
    }
    return subprocess.Popen([sys.executable, "worker.py", seconds], env={**os.environ, **own})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", required=True)
    parser.add_argument("--seconds", required=True)
    args = parser.parse_args()
    children = {rank: start(rank, args.port, args.seconds) for rank in range(WORLD)}
    while children:
        for rank, child in list(children.items()):
            if child.poll() == 0:
                del children[rank]
            elif child.poll() is not None:
                children[rank] = start(rank, args.port, args.seconds)
        time.sleep(0.5)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT --seconds $AMOUNT"
# outcome = "ok"
# amount = 30.0
# [files]
# "worker.py" = '''
# """A rank: its checkpoint, and then the training."""
# import os
# import signal
# import sys
# import time
# from pathlib import Path
#
# import torch
# import torch.distributed as dist
#
#
# def load_checkpoint(seconds):
#     mark = Path("preempted")
#     if not mark.exists():
#         mark.touch()
#         os.kill(os.getpid(), signal.SIGTERM)
#     for part in range(10):
#         Path(f"part{part}").write_bytes(bytes(1 << 16))
#         time.sleep(seconds / 10)  # a far disk
#
#
# if os.environ["RANK"] == "1":
#     load_checkpoint(float(sys.argv[1]))
# dist.init_process_group("gloo")
# dist.all_reduce(torch.ones(1))
# dist.destroy_process_group()
# '''
# ///
