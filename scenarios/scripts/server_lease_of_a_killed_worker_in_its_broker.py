"""Two workers lease the only adapter of a server from a broker, which gives it to who asks when it
is given back; the first is killed with the lease in its hand, and the second waits for it.

The broker serves each client in a thread, and knows nothing of ends: it waits on the condition of
the lease for the second one. The launcher starts the three and waits for the second worker.
"""

import argparse
import os
import signal
import socket
import socketserver
import subprocess
import sys
import threading
import time


class Leases:
    def __init__(self) -> None:
        self.free, self.holder = threading.Condition(), ""

    def take(self, who: str) -> None:
        with self.free:
            self.free.wait_for(lambda: not self.holder)
            self.holder = who

    def give_back(self, who: str) -> None:
        with self.free:
            if self.holder == who:
                self.holder = ""
            self.free.notify_all()


class Handler(socketserver.StreamRequestHandler):
    leases = Leases()

    def handle(self) -> None:
        for line in self.rfile:
            verb, who = line.decode().split()
            (self.leases.take if verb == "take" else self.leases.give_back)(who)
            self.wfile.write(b"ok\n")


class Broker:
    def __init__(self, path: str, who: str) -> None:
        self.socket, self.who = socket.socket(socket.AF_UNIX), who
        while self.socket.connect_ex(path):
            time.sleep(0.2)
        self.answers = self.socket.makefile()

    def ask(self, verb: str) -> str:
        self.socket.sendall(f"{verb} {self.who}\n".encode())
        return self.answers.readline()


def work(path: str, number: int) -> None:
    broker = Broker(path, f"worker-{number}")
    for step in range(3):
        broker.ask("take")
        print(f"worker {number} has the adapter for step {step}", flush=True)
        if number == 0 and step == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        time.sleep(0.3)
        broker.ask("give")
        time.sleep(0.3)


def serve(path: str) -> None:
    with socketserver.ThreadingUnixStreamServer(path, Handler) as server:
        server.serve_forever()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--role", default="launcher")
    role = parser.parse_args().role
    if role == "broker":
        return serve("broker.sock")
    if role != "launcher":
        return work("broker.sock", int(role))
    command = [sys.executable, sys.argv[0], "--role"]
    parts = [subprocess.Popen([*command, one]) for one in ("broker", "0", "1")]
    parts[2].wait()
    parts[0].terminate()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[-1], [0]]
# steps = ["script", "arguments"]
# after = ["Args parsed", ""]
# own_code = true
# ends = true
# calls = ['wait', 'readline', 'ask', 'work', 'take', 'main', '^$']
# causes = ["child-died", "child-process-stuck", "server-process-stuck", "child-program"]
# says = ['SIGKILL|signal 9|killed|take|broker']
# ///
