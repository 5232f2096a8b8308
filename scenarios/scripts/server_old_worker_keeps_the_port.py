"""A rollout server fails once at its start and a loop of a shell starts it again; a worker that its
first attempt had forked lives on and has the listening socket, so the second cannot bind.

Rank 0 asks /health without a time limit: the kernel takes its connection for the old socket, which
nobody accepts from. Rank 1 waits for rank 0 in a barrier; the server tries to bind every second.
"""

import sys
import time
import urllib.error
import urllib.request

import torch.distributed as dist


def wait_until_healthy(port: str) -> None:
    while True:
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health").close()
            return
        except urllib.error.URLError:
            time.sleep(0.5)


def main() -> None:
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        wait_until_healthy(sys.argv[1])
    dist.barrier()
    print("rollouts can begin", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "sh serve.sh $PORT"
# culprits = [[0], [-1]]
# waiting = [1]
# steps = ["process_group", "script"]
# after = ["Process group ready", ""]
# own_code = true
# calls = ['urlopen', 'wait_until_healthy', 'recv', 'readinto', 'bind', 'sleep']
# says = ['127\.0\.0\.1:\d+', 'server\.py|\(\d+\)']
# [files]
# "serve.sh" = '''
# until python server.py $1; do sleep 1; done &
# torchrun --standalone --nproc_per_node=2 train.py $1
# '''
# "server.py" = '''
# """A server with one worker, which the first time cannot read its settings after it has forked."""
# import os
# import socket
# import sys
# import time
# from pathlib import Path
#
#
# def run_worker(rank):
#     while True:
#         time.sleep(3600)  # for its first request
#
#
# def bind(port):
#     while True:
#         try:
#             return socket.create_server(("127.0.0.1", port))
#         except OSError as error:
#             print(error, file=sys.stderr, flush=True)
#             time.sleep(1)
#
#
# def main(port):
#     listener = bind(port)
#     if not os.fork():
#         run_worker(0)
#     settings = Path("settings.txt")
#     if not settings.exists():
#         settings.write_text("made at the first start")
#         raise RuntimeError("no settings")
#     while True:
#         asked, _ = listener.accept()
#         asked.sendall(b"HTTP/1.1 200 OK\\r\\nContent-Length: 0\\r\\n\\r\\n")
#         asked.close()
#
#
# main(int(sys.argv[1]))
# '''
# ///
