"""torchrun restarts all after an error; the exporter that rank 1 of three had started lives on, and
keeps the port for which rank 1 now waits.

The exporter ignores that its parent has ended. A new one may only listen when the port is free.
"""

import argparse
import os
import socket
import subprocess
import sys
import time

import torch
import torch.distributed as dist

EXPORTER = """
import socket, sys, time
listener = socket.create_server(("127.0.0.1", int(sys.argv[1])))
print("up", flush=True)
while True:
    time.sleep(60)
"""


def is_free(port: int) -> bool:
    with socket.socket() as one:
        one.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            one.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def start_exporter(port: int) -> None:
    while not is_free(port):
        time.sleep(1)
    words = [sys.executable, "-c", EXPORTER, str(port)]
    exporter = subprocess.Popen(words, stdout=subprocess.PIPE, start_new_session=True)
    assert exporter.stdout is not None
    exporter.stdout.readline()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    rank = int(os.environ["RANK"])
    if rank == 1:
        start_exporter(given.port)
    first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    if rank == 2 and first:
        time.sleep(3)
        sys.exit("no room for its shard (not really)")
    time.sleep(30 if first else 2)  # reads its data, which is in the cache the second time
    dist.init_process_group("gloo")
    for step in range(10):
        total = torch.ones(8)
        dist.all_reduce(total)
        print(f"rank {rank} step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --max-restarts=1 --nproc_per_node=3 train.py --port $PORT"
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["process_group", "arguments", "training"]
# after = ["Args parsed", "torch imported", ""]
# own_code = true
# calls = ['start_exporter', 'sleep', 'main']
# causes = ["port-taken", "port-in-use", "polling-loop", "own-code-sleeps"]
# limit = 240
# ///
