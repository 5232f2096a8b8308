"""An API server starts three workers as commands of their own and waits until each has said
hello over ZeroMQ. Worker 1 ends by an error in its first second; a thread of the server takes
the status of whatever ends (so that there are no zombies) and only counts it.

Nothing is left of worker 1. Workers 0 and 2 wait for their first request.
"""

import argparse
import os
import subprocess
import sys
import threading
import time

import zmq

ENDED = [0]


def reap() -> None:
    while True:
        try:
            os.waitpid(-1, 0)
            ENDED[0] += 1
        except ChildProcessError:
            time.sleep(0.2)


def wait_for_hellos(hellos: zmq.Socket[bytes], count: int) -> None:
    for number in range(count):
        print(f"{number + 1} of {count}: {hellos.recv().decode()}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=3)
    args = parser.parse_args()
    hellos = zmq.Context.instance().socket(zmq.PULL)
    hellos.bind("ipc://hello.sock")
    for number in range(args.workers):
        subprocess.Popen([sys.executable, "worker.py", str(number)], stderr=subprocess.DEVNULL)
    threading.Thread(target=reap, daemon=True).start()
    wait_for_hellos(hellos, args.workers)
    print("all workers are up", flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --workers 3"
# needs = ["zmq"]
# culprits = [[0], [-1]]
# steps = ["script", "arguments"]
# after = ["Args parsed", ""]
# own_code = true
# ends = true
# calls = ['recv', 'wait_for_hellos', 'main', '^$']
# causes = ["child-died", "worker-dead", "nobody-sends", "deadlock"]
# says = ['worker\.py|python|hello\.sock']
# [files]
# "worker.py" = '''
# """Says hello, then works."""
# import sys
#
# import zmq
#
# context = zmq.Context.instance()
# if sys.argv[1] == "1":
#     raise SystemExit(3)
# hello = context.socket(zmq.PUSH)
# hello.connect("ipc://hello.sock")
# hello.send(f"worker {sys.argv[1]}".encode())
# requests = context.socket(zmq.PULL)
# requests.bind(f"ipc://requests{sys.argv[1]}.sock")
# requests.recv()
# '''
# ///
