"""A controller and its workers, programs of their own, over TCP: worker 1 was installed anew and
greets with a length of 4 bytes where the controller reads one of 8, and waits for the answer.

Worker 0 has greeted in the old way and waits for its first task. The controller reads on for the
rest of a greeting that has come whole.
"""

import argparse
import socket
import struct
import subprocess
import sys


def read_exactly(connection: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = connection.recv(min(size - len(data), 65536))
        if not part:
            raise ConnectionError("the worker has gone")
        data += part
    return data


def greet(connection: socket.socket) -> bytes:
    (length,) = struct.unpack(">Q", read_exactly(connection, 8))
    greeting = read_exactly(connection, length)
    connection.sendall(struct.pack(">Q", 2) + b"ok")
    return greeting


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--workers", type=int, default=2)
    args = parser.parse_args()
    with socket.create_server(("127.0.0.1", args.port)) as listener:
        connections = []
        for number in range(args.workers):
            words = [sys.executable, "worker.py", str(args.port), str(number)]
            subprocess.Popen(words)
            connection, _ = listener.accept()
            print("registered:", greet(connection), flush=True)
            connections.append(connection)
    for connection in connections:
        connection.sendall(b"task")


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT --workers 2"
# needs = ["setproctitle"]
# culprits = [[0], [-1]]
# steps = ["script", "arguments"]
# after = ["", "Args parsed"]
# own_code = true
# calls = ['recv', 'read_exactly', 'greet', 'register']
# causes = ["deadlock", "nobody-sends", "unknown", "server-process-stuck", "child-process-stuck"]
# says = ['worker1|127\.0\.0\.1:\d+']
# [files]
# "worker.py" = '''
# """Greets its controller and does its tasks."""
# import socket
# import struct
# import sys
#
# import setproctitle
#
#
# def register(connection, number):
#     greeting = f"worker {number}, 8 cores".encode()
#     head = struct.pack(">I" if number == 1 else ">Q", len(greeting))
#     connection.sendall(head + greeting)
#     return connection.recv(10)
#
#
# def main(port, number):
#     setproctitle.setproctitle(f"pool::worker{number}")
#     with socket.create_connection(("127.0.0.1", port)) as connection:
#         register(connection, number)
#         while connection.recv(4):
#             pass
#
#
# main(int(sys.argv[1]), int(sys.argv[2]))
# '''
# ///
