"""mp.spawn: a registry in the parent reads questions, each with its length before it; rank 2 of
four has been told to ask by TLS.

The first bytes of its greeting are a length that never comes, so the registry waits for more, and
rank 2 for an answer to it.
"""

import argparse
import os
import socket
import ssl
import threading

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

WORLD = 4


def serve(listener: socket.socket) -> None:
    def answer(asker: socket.socket) -> None:
        with asker, asker.makefile("rb") as frames:
            while head := frames.read(4):
                question = frames.read(int.from_bytes(head))
                asker.sendall(b"version of " + question + b" is 3")

    while True:
        asker, _ = listener.accept()
        threading.Thread(target=answer, args=(asker,), daemon=True).start()


def ask(port: int, question: str, secure: bool) -> str:
    with socket.create_connection(("127.0.0.1", port)) as plain:
        connection = plain
        if secure:
            context = ssl.create_default_context()
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            connection = context.wrap_socket(plain)
        connection.sendall(len(question).to_bytes(4) + question.encode())
        return connection.recv(200).decode()


def train(rank: int, port: str, registry: int) -> None:
    torch.set_num_threads(1)
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=port)
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    print(f"rank {rank}: {ask(registry, 'tokenizer', secure=rank == 2)}", flush=True)
    total = torch.ones(4)
    for _ in range(10):
        dist.all_reduce(total)
        total /= WORLD
    dist.destroy_process_group()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", required=True)
    given = parser.parse_args()
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve, args=(listener,), daemon=True).start()
    mp.spawn(train, args=(given.port, listener.getsockname()[1]), nprocs=WORLD)

# /// case
# command = "python train.py --port $PORT"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["process_group", "training"]
# after = ["Process group ready", ""]
# own_code = true
# calls = ['ask', 'wrap_socket', 'do_handshake', '_create', 'train']
# causes = ["endpoint-silent"]
# ///
