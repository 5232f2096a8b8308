"""A master waits with sigwait() for its worker's signal that the model is loaded. The worker
sends it as soon as it is up, at which time the master still reads its configuration and has a
handler of a library for that signal: the handler takes it, and sigwait() waits for a second one.

The worker is whole, listens, and waits for requests.
"""

import argparse
import os
import signal
import socket
import sys
import time

import setproctitle


def run_worker(listener: socket.socket) -> None:
    setproctitle.setproctitle("modelserver: worker")
    os.kill(os.getppid(), signal.SIGUSR2)
    while True:
        connection, _ = listener.accept()
        connection.close()


def read_configuration() -> dict[str, int]:
    time.sleep(2)
    return {"workers": 1}


def wait_for_worker() -> None:
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2})
    signal.sigwait({signal.SIGUSR2})


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    signal.signal(signal.SIGUSR2, lambda *_: None)  # a library's: it prints stacks
    listener = socket.create_server(("127.0.0.1", args.port))
    if os.fork() == 0:
        run_worker(listener)
        sys.exit(0)
    read_configuration()
    wait_for_worker()
    print("ready", flush=True)
    os.wait()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# needs = ["setproctitle"]
# culprits = [[0]]
# steps = ["script", "arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['sigwait', 'wait_for_worker', 'main']
# causes = ["signal-wait"]
# says = ['SIGUSR2|signal']
# ///
