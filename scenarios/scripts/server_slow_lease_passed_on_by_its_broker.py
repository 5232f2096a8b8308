"""Healthy and slow: two workers lease a model from a broker in turn; the first computes for long
with the lease in its hand, and the second waits in its request to the broker meanwhile.
"""

import contextlib
import multiprocessing
import sys
import threading
import time
from multiprocessing.connection import Client, Listener

import setproctitle

spawn = multiprocessing.get_context("spawn")
ADDRESS = "broker.sock"


class Broker:
    def __init__(self) -> None:
        self.lease = threading.Lock()

    def talk(self, connection) -> None:
        with contextlib.suppress(EOFError):
            while True:
                if connection.recv() == "take":
                    self.lease.acquire()
                else:
                    self.lease.release()
                connection.send("ok")

    def run(self) -> None:
        setproctitle.setproctitle("modelserve::broker")
        with Listener(ADDRESS, "AF_UNIX") as listener:
            while True:
                talking = threading.Thread(target=self.talk, args=(listener.accept(),), daemon=True)
                talking.start()


def run_broker() -> None:
    Broker().run()


def compute(seconds: float) -> int:
    end, rounds = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        rounds += sum(range(1000)) % 7
    return rounds


def work(number: int, seconds: float) -> None:
    setproctitle.setproctitle(f"modelserve::worker_{number}")
    time.sleep(3 * number + 1)
    with Client(ADDRESS, "AF_UNIX") as broker:
        broker.send("take")
        broker.recv()
        compute(seconds if number == 0 else 1)
        broker.send("give")
        print(number, broker.recv(), flush=True)


def main(seconds: float) -> None:
    spawn.Process(target=run_broker, daemon=True).start()
    workers = [spawn.Process(target=work, args=(number, seconds)) for number in range(2)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()


if __name__ == "__main__":
    main(float(sys.argv[1]))

# /// case
# command = "python train.py $AMOUNT"
# needs = ["setproctitle"]
# outcome = "ok"
# amount = 50.0
# limit = 240.0
# ///
