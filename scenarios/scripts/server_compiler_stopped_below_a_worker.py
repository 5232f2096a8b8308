"""An engine of two workers; TP1 keeps a process that compiles its kernels and asks it by stdin;
that process has been stopped (SIGSTOP, as by who made room on the machine), TP0 waits in a
barrier.

The front waits for the engine's word over ZeroMQ, the engine for its workers' pipes.
"""

import argparse
import multiprocessing
import os
import subprocess
import sys
from multiprocessing.connection import Connection

import setproctitle
import zmq

spawn = multiprocessing.get_context("spawn")


class KernelCompiler:
    def __init__(self) -> None:
        words = [sys.executable, "-u", "kernelcache.py"]
        self.process = subprocess.Popen(
            words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def build(self, name: str) -> str:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(name + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline()


def run_worker(rank: int, port: int, ready: Connection) -> None:
    setproctitle.setproctitle(f"VLLM::Worker_TP{rank}")
    import torch.distributed as dist

    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
    dist.init_process_group("gloo", rank=rank, world_size=2)
    if rank == 1:
        compiler = KernelCompiler()
        for name in ("rms_norm", "silu_and_mul", "rotary"):
            compiler.build(name)
    dist.barrier()
    ready.send("ready")
    ready.recv()


def run_engine(address: str, port: int) -> None:
    setproctitle.setproctitle("VLLM::EngineCore")
    pipes = []
    for rank in range(2):
        ours, theirs = spawn.Pipe()
        spawn.Process(target=run_worker, args=(rank, port, theirs)).start()
        theirs.close()
        pipes.append(ours)
    for one in pipes:
        one.recv()
    front = zmq.Context.instance().socket(zmq.DEALER)
    front.connect(address)
    front.send(b"READY")
    front.recv()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    setproctitle.setproctitle("VLLM::APIServer")
    front = zmq.Context.instance().socket(zmq.ROUTER)
    front.bind("ipc://handshake.sock")
    spawn.Process(target=run_engine, args=("ipc://handshake.sock", args.port)).start()
    print(front.recv_multipart(), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# needs = ["zmq", "setproctitle"]
# culprits = [[1]]
# waiting = [0]
# steps = ["process_group", "script", "arguments"]
# after = ["Process group ready", "", "Args parsed", "torch imported"]
# own_code = true
# calls = ['readline', 'build', 'run_worker']
# causes = ["stopped"]
# says = ['kernelcache|stopped']
# [files]
# "kernelcache.py" = '''
# """Compiles a kernel for each line of its input and prints where it is."""
# import os
# import signal
# import sys
#
#
# def main():
#     for number, name in enumerate(iter(sys.stdin.readline, "")):
#         if number == 2:
#             os.kill(os.getpid(), signal.SIGSTOP)
#         print(f"/tmp/kernels/{name.strip()}.so", flush=True)
#
#
# main()
# '''
# ///
