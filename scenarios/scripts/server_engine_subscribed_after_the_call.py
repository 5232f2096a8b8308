"""A trainer tells both workers of an engine by one message to join the group for the weights; the
engine's worker TP1 had not subscribed yet, so only TP0 got it, and it and the trainer wait for TP1.

ZeroMQ's PUB drops what nobody has subscribed to. TP1 was later for it had a cache to read first; it
waits in recv() for the next word. Nothing has died and nothing is full.
"""

import argparse
import subprocess
import sys
from datetime import timedelta

import zmq


def init_weights_group(port: int) -> None:
    import torch.distributed as dist

    dist.init_process_group(
        "gloo",
        init_method=f"tcp://127.0.0.1:{port}",
        rank=0,
        world_size=3,
        timeout=timedelta(hours=2),
    )


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    context = zmq.Context.instance()
    words, hello = context.socket(zmq.PUB), context.socket(zmq.PULL)
    words.bind("ipc://words.sock")
    hello.bind("ipc://hello.sock")
    engine = subprocess.Popen([sys.executable, "engine.py", str(args.port)])
    print(hello.recv_string(), flush=True)
    words.send_string("init_weights_group")
    init_weights_group(args.port)
    words.send_string("stop")
    engine.wait()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# needs = ["zmq", "setproctitle"]
# culprits = [[2], [1], [-1]]
# waiting = [0]
# steps = ["process_group", "script", "arguments"]
# after = ["", "Args parsed", "torch imported", "Process group ready"]
# own_code = true
# calls = ['recv', 'work', 'init_process_group', '^$']
# causes = ["rank-never-started", "nobody-sends", "rank-conditional-collective"]
# says = ['TP1|rank 2']
# [files]
# "engine.py" = '''
# """An engine of two workers, which do what a published word says."""
# import multiprocessing
# import sys
# import time
# from datetime import timedelta
#
# import setproctitle
# import zmq
#
#
# def init_weights_group(rank, port):
#     import torch.distributed as dist
#
#     dist.init_process_group(
#         "gloo",
#         init_method=f"tcp://127.0.0.1:{port}",
#         rank=rank,
#         world_size=3,
#         timeout=timedelta(hours=2),
#     )
#
#
# def work(rank, port):
#     setproctitle.setproctitle(f"Engine::Worker_TP{rank}")
#     if rank == 1:
#         time.sleep(3)  # its cache
#     context = zmq.Context.instance()
#     words = context.socket(zmq.SUB)
#     words.setsockopt_string(zmq.SUBSCRIBE, "")
#     words.connect("ipc://words.sock")
#     if rank == 0:
#         time.sleep(0.5)
#         hello = context.socket(zmq.PUSH)
#         hello.connect("ipc://hello.sock")
#         hello.send_string("engine is up")
#     while (word := words.recv_string()) != "stop":
#         if word == "init_weights_group":
#             init_weights_group(1 + rank, port)
#
#
# if __name__ == "__main__":
#     spawn = multiprocessing.get_context("spawn")
#     workers = [spawn.Process(target=work, args=(r, int(sys.argv[1]))) for r in range(2)]
#     for one in workers:
#         one.start()
#     for one in workers:
#         one.join()
# '''
# ///
