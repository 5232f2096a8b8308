"""A proxy starts its two workers by mpirun and waits for their leader over ZeroMQ, as TensorRT-LLM
does; worker 1 waits for a lock on the folder of engines, which another program has.

The leader is at MPI's barrier, where it spins.
"""

import argparse
import subprocess
import sys

import zmq


class Proxy:
    def __init__(self, workers: int, lock: str) -> None:
        self.answers = zmq.Context.instance().socket(zmq.PAIR)
        self.answers.bind("ipc://answers.sock")
        words = ["mpirun", "--allow-run-as-root", "--oversubscribe", "--bind-to", "none"]
        words += ["-n", str(workers), sys.executable, "worker.py", lock]
        self.workers = subprocess.Popen(words)

    def wait_until_ready(self) -> bytes:
        return self.answers.recv()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tp-size", type=int, default=2)
    parser.add_argument("--lock", required=True)
    args = parser.parse_args()
    proxy = Proxy(args.tp_size, args.lock)
    print(proxy.wait_until_ready(), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --tp-size 2 --lock $LOCK"
# world = "held_lock"
# needs = ["zmq", "mpi4py", "setproctitle"]
# culprits = [[1]]
# waiting = [0]
# steps = ["script", "arguments"]
# after = ["", "Args parsed", "MPI ready"]
# own_code = true
# busy = true
# calls = ['flock', 'load_engine', 'main']
# causes = ["file-lock-held"]
# says = ['cache\.lock']
# [files]
# "worker.py" = '''
# """Loads its part of an engine; the first rank tells the proxy."""
# import fcntl
# import sys
#
# import setproctitle
# import zmq
# from mpi4py import MPI
#
#
# def load_engine(rank, path):
#     if rank == 1:
#         with open(path) as file:
#             fcntl.flock(file, fcntl.LOCK_EX)
#     return bytes(1 << 20)
#
#
# def main():
#     comm = MPI.COMM_WORLD
#     setproctitle.setproctitle(f"trtllm::worker_{comm.rank}")
#     engine = load_engine(comm.rank, sys.argv[1])
#     comm.Barrier()
#     if comm.rank == 0:
#         proxy = zmq.Context.instance().socket(zmq.PAIR)
#         proxy.connect("ipc://answers.sock")
#         proxy.send(str(len(engine)).encode())
#         proxy.recv()
#
#
# main()
# '''
# ///
