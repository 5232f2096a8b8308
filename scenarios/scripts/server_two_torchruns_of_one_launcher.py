"""One launcher starts two jobs of torchrun, a server of four ranks and a trainer of three; both
meet in a store for the weights. The server's rank 3 cannot read its config and serves on.

The exception of rank 3 is caught and logged by its loop. The server's ranks 0 to 2 and the
trainer's rank 0 wait in the store for it, the trainer's ranks 1 and 2 at their barrier.
"""

import argparse
import subprocess
import sys
from datetime import timedelta

PARTIES = 5  # the trainer's rank 0, and four of the server


def weights_group(port: int, party: int) -> object:
    from torch.distributed import TCPStore

    store = TCPStore("127.0.0.1", port + 1, PARTIES, party == 0, wait_for_workers=False)
    store.set(f"weights/{party}", "here")
    store.wait([f"weights/{one}" for one in range(PARTIES)], timedelta(hours=2))
    return store


def train(port: int) -> None:
    import torch
    import torch.distributed as dist

    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        weights_group(port, 0)
    dist.barrier()
    dist.all_reduce(torch.ones(1))
    dist.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--role", default="launcher")
    args = parser.parse_args()
    if args.role == "trainer":
        train(args.port)
        return
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone"]
    server = [*words, "--nproc_per_node=4", "serve.py", str(args.port)]
    trainer = [
        *words,
        "--nproc_per_node=3",
        __file__,
        "--role",
        "trainer",
        "--port",
        str(args.port),
    ]
    jobs = [subprocess.Popen(server), subprocess.Popen(trainer)]
    for job in jobs:
        job.wait()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# culprits = [[3], [0]]
# waiting = [1, 2]
# steps = ["process_group", "barrier", "script", "store", "training", "import_torch"]
# after = ["Process group ready", "torch imported", "Args parsed", "Barrier passed", ""]
# own_code = true
# calls = ['serve', 'sleep', 'wait', 'weights_group', 'get']
# causes = ["swallowed-exception", "store-key-missing", "store-not-reached"]
# says = ['weights/4|weights_group|store']
# [files]
# "serve.py" = '''
# """Ranks that serve: they do one task after another, and an error of one does not end them."""
# import json
# import queue
# import sys
# import threading
# import traceback
#
# import torch.distributed as dist
# from train import weights_group
#
#
# def read_config(rank):
#     return json.loads('{"dtype": "bf16"' + ("}" if rank != 3 else ""))
#
#
# def join(rank):
#     read_config(rank)
#     weights_group(int(sys.argv[1]), rank + 1)
#
#
# class Server:
#     def __init__(self):
#         self.tasks = queue.Queue()
#         self.tasks.put(join)
#
#     def serve(self, rank):
#         while True:
#             task = self.tasks.get()
#             try:
#                 task(rank)
#             except Exception:
#                 traceback.print_exc(file=open(f"server{rank}.log", "w"))
#
#
# if __name__ == "__main__":
#     dist.init_process_group("gloo")
#     Server().serve(dist.get_rank())
# '''
# ///
