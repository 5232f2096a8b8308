"""Healthy and idle: a server that forks four workers which accept in turn, by a lock on a file: one
of them has it and waits in accept(), the others wait for the lock; long after a client comes
twice.
"""

import argparse
import fcntl
import os
import signal
import socket

import setproctitle

WORKERS = 4


def handle(connection: socket.socket, number: int) -> bool:
    with connection:
        asked = connection.recv(4096)
        body = b"worker %d\n" % number
        connection.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body))
    return b"/shutdown" in asked


def serve(listener: socket.socket, number: int) -> None:
    setproctitle.setproctitle(f"textserve: worker [{number}]")
    turn = os.open("accept.lock", os.O_RDWR)
    while True:
        fcntl.flock(turn, fcntl.LOCK_EX)
        connection, _ = listener.accept()
        fcntl.flock(turn, fcntl.LOCK_UN)
        if handle(connection, number):
            os.kill(os.getppid(), signal.SIGTERM)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    setproctitle.setproctitle("textserve: master [train]")
    os.close(os.open("accept.lock", os.O_RDWR | os.O_CREAT))
    listener = socket.create_server(("127.0.0.1", args.port), backlog=128)
    workers = []
    for number in range(WORKERS):
        pid = os.fork()
        if not pid:
            serve(listener, number)
        workers.append(pid)
    print(f"Listening at: http://127.0.0.1:{args.port}", flush=True)

    def end(*_: object) -> None:
        for pid in workers:
            os.kill(pid, signal.SIGKILL)
        os._exit(0)

    signal.signal(signal.SIGTERM, end)
    while True:
        signal.pause()


if __name__ == "__main__":
    main()

# /// case
# command = "sh serve.sh $PORT $AMOUNT"
# outcome = "ok"
# needs = ["setproctitle"]
# amount = 60.0
# [files]
# "serve.sh" = '''
# python train.py --port $1 &
# sleep $2
# curl -s http://127.0.0.1:$1/
# curl -s http://127.0.0.1:$1/shutdown
# wait
# '''
# ///
