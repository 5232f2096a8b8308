"""A server that forks four workers which accept in turn, by a lock on a file; worker 2 forgot to
let go of it before it handles its request, and that asks a tokenizer service which never
answers.

The other three wait for the lock; the requests that came since wait in the queue of the listening
socket. The master waits for the end of a worker.
"""

import argparse
import fcntl
import os
import socket
import time
import urllib.request

import setproctitle

WORKERS = 4


def render(number: int, service: str) -> bytes:
    if number == 2:  # has no tokenizer of its own yet
        with urllib.request.urlopen(f"{service}/tokenizer.json") as answer:
            return answer.read()
    return b"ok\n"


def handle(connection: socket.socket, number: int, service: str) -> None:
    with connection:
        connection.recv(4096)
        body = render(number, service)
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))


def serve(listener: socket.socket, number: int, service: str) -> None:
    setproctitle.setproctitle(f"textserve: worker [{number}]")
    time.sleep(abs(number - 2) * 0.2)  # loading
    turn = os.open("accept.lock", os.O_RDWR)
    while True:
        fcntl.flock(turn, fcntl.LOCK_EX)
        connection, _ = listener.accept()
        handle(connection, number, service)
        fcntl.flock(turn, fcntl.LOCK_UN)
        time.sleep(0.05)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    setproctitle.setproctitle("textserve: master [train]")
    os.close(os.open("accept.lock", os.O_RDWR | os.O_CREAT))
    listener = socket.create_server(("127.0.0.1", args.port), backlog=128)
    for number in range(WORKERS):
        if not os.fork():
            serve(listener, number, os.environ["SERVICE"])
    print(f"Listening at: http://127.0.0.1:{args.port}", flush=True)
    while True:
        pid, status = os.wait()
        print(f"worker {pid} ended with {status}", flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "sh serve.sh $PORT"
# world = "silent_service"
# needs = ["setproctitle"]
# culprits = [[-1], [0]]
# steps = ["script", "arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['urlopen', 'render', 'read', 'handle', 'os\.wait']
# causes = ["endpoint-silent"]
# says = ['worker \[2\]|127\.0\.0\.1:\d+']
# [files]
# "serve.sh" = '''
# python train.py --port $1 &
# sleep 4
# for n in 1 2 3; do curl -s http://127.0.0.1:$1/ & done
# wait
# '''
# ///
