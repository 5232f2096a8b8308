"""mpirun: a ring of sockets; rank 1 announces the length before compression, and sends less.

Rank 2 has got all that rank 1 sent and waits for the rest of the frame. Rank 1 has its own frame of
rank 0 and waits at the hub's barrier, as do ranks 0 and 3.
"""

import json
import os
import socket
import struct
import time
import zlib

WORLD, RANK = int(os.environ["OMPI_COMM_WORLD_SIZE"]), int(os.environ["OMPI_COMM_WORLD_RANK"])


def listen(name: str) -> socket.socket:
    server = socket.create_server(("127.0.0.1", 0))
    with open(f"{name}.tmp", "w") as file:
        file.write(str(server.getsockname()[1]))
    os.rename(f"{name}.tmp", name)
    return server


def connect(name: str) -> socket.socket:
    while not os.path.exists(name):
        time.sleep(0.05)
    return socket.create_connection(("127.0.0.1", int(open(name).read())))


def send(to: socket.socket, what: object) -> None:
    text = json.dumps(what).encode()
    packed = zlib.compress(text)
    length = len(text) if RANK == 1 else len(packed)
    to.sendall(struct.pack("!I", length) + packed)


def read(sock: socket.socket, count: int) -> bytes:
    got = b""
    while len(got) < count:
        more = sock.recv(count - len(got))
        if not more:
            raise EOFError
        got += more
    return got


def receive(sock: socket.socket) -> object:
    (length,) = struct.unpack("!I", read(sock, 4))
    return json.loads(zlib.decompress(read(sock, length)))


class Hub:
    """Rank 0 hears all others and then answers them."""

    def __init__(self) -> None:
        if RANK == 0:
            server = listen("hub")
            self.all = [server.accept()[0] for _ in range(WORLD - 1)]
        else:
            self.one = connect("hub")

    def barrier(self) -> None:
        if RANK == 0:
            for one in self.all:
                read(one, 1)
            for one in self.all:
                one.sendall(b"!")
        else:
            self.one.sendall(b"?")
            read(self.one, 1)


def main() -> None:
    hub = Hub()
    server = listen(f"ring-{RANK}")
    right = connect(f"ring-{(RANK + 1) % WORLD}")
    left = server.accept()[0]
    hub.barrier()
    for step in range(3):
        mine = {"rank": RANK, "step": step, "histogram": [0] * 400}
        send(right, mine)
        theirs = receive(left)
        hub.barrier()
        print(f"rank {RANK} step {step}: {len(str(theirs))}", flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "mpirun --allow-run-as-root --oversubscribe --bind-to none -n 4 python train.py"
# culprits = [[1], [2], [1, 2]]
# waiting = [0, 3]
# steps = ["arguments"]
# after = ["", "Python started", "Ranks started"]
# own_code = true
# calls = ['recv', 'receive', 'read', 'barrier']
# causes = ["deadlock", "nobody-sends", "message-left-out"]
# ///
