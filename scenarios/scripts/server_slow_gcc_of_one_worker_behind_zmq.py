"""Healthy and slow: the engine's worker TP1 compiles its kernels by gcc for long, TP0 has none to
compile and looks at a flag in shared memory; the front polls the engine's handshake over ZeroMQ.

All are ready then, and a request is answered.
"""

import argparse
import multiprocessing
import subprocess
import time
from multiprocessing.connection import Connection
from multiprocessing.shared_memory import SharedMemory

import setproctitle
import zmq

spawn = multiprocessing.get_context("spawn")
LINE = "double f{n}(double x) {{ for (int i = 0; i < 50; i++) x = x * {n}.5 + i; return x; }}\n"


def compile_kernels(lines: int) -> None:
    for number in range(6):
        with open(f"kernel{number}.c", "w") as file:
            file.writelines(LINE.format(n=n) for n in range(lines))
        words = ["gcc", "-O3", "-funroll-all-loops", "-shared", "-fPIC", f"kernel{number}.c"]
        subprocess.run([*words, "-o", f"kernel{number}.so"], check=True)


def run_worker(rank: int, flags: str, lines: int, pipe: Connection) -> None:
    setproctitle.setproctitle(f"VLLM::Worker_TP{rank}")
    memory = SharedMemory(flags)
    if rank == 1:
        compile_kernels(lines)
    memory.buf[rank] = 1
    while not all(memory.buf[:2]):
        time.sleep(0.002)
    pipe.send("ready")
    while (prompt := pipe.recv()) is not None:
        pipe.send(prompt.upper())


def run_engine(lines: int) -> None:
    setproctitle.setproctitle("VLLM::EngineCore")
    memory = SharedMemory(create=True, size=2)
    pipes = []
    for rank in range(2):
        ours, theirs = spawn.Pipe()
        spawn.Process(target=run_worker, args=(rank, memory.name, lines, theirs)).start()
        theirs.close()
        pipes.append(ours)
    for one in pipes:
        one.recv()
    front = zmq.Context.instance().socket(zmq.DEALER)
    front.connect("ipc://front.sock")
    front.send(b"READY")
    while request := front.recv_string():
        for one in pipes:
            one.send(request)
        front.send_string(" ".join(one.recv() for one in pipes))
    for one in pipes:
        one.send(None)
    memory.unlink()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--lines", type=float, required=True)
    args = parser.parse_args()
    front = zmq.Context.instance().socket(zmq.ROUTER)
    front.bind("ipc://front.sock")
    engine = spawn.Process(target=run_engine, args=(int(args.lines),))
    engine.start()
    poller = zmq.Poller()
    poller.register(front, zmq.POLLIN)
    while not poller.poll(10_000):
        print("Waiting for 1 local core engine proc(s) to start.", flush=True)
    identity, _ = front.recv_multipart()
    front.send_multipart([identity, b"once upon a time"])
    print(front.recv_multipart()[1], flush=True)
    front.send_multipart([identity, b""])
    engine.join()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --lines $AMOUNT"
# outcome = "ok"
# needs = ["zmq", "setproctitle"]
# amount = 1200.0
# limit = 300
# ///
