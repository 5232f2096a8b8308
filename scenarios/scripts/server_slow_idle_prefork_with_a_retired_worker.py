"""Healthy: a preforking server that nobody asks: four workers wait in accept(), one has retired
with status 0 and is a zombie until its master looks again, in a minute; a helper of it, a
program, has ended with status 1 because it found nothing to do. Later the server ends.
"""

import argparse
import os
import socket
import subprocess
import sys
import time

import setproctitle


def run_worker(number: int, listener: socket.socket) -> None:
    setproctitle.setproctitle(f"modelserver: worker {number}")
    if number == 3:
        os._exit(0)
    while True:
        connection, _ = listener.accept()
        connection.close()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    setproctitle.setproctitle("modelserver: master")
    listener = socket.create_server(("127.0.0.1", args.port))
    workers = []
    for number in range(5):
        pid = os.fork()
        if pid == 0:
            run_worker(number, listener)
        workers.append(pid)
    subprocess.Popen([sys.executable, "-c", "raise SystemExit(1)"])
    end = time.monotonic() + args.seconds
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(left, 60.0))
    for pid in workers[:3] + workers[4:]:
        os.kill(pid, 15)
        os.waitpid(pid, 0)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT --seconds $AMOUNT"
# needs = ["setproctitle"]
# outcome = "ok"
# amount = 50.0
# limit = 240.0
# ///
