"""A launcher of its own reaps all children in a handler of SIGCHLD; each rank has a session.

Ranks fork beside threads, end by os._exit, by a signal, and with daemon threads that still print.
"""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

WORKER = r"""
import os, signal, sys, threading, time
import torch

rank = int(os.environ["RANK"])
out = open(f"out-{rank}.txt", "w", buffering=1)
ended = []


def reap(number, frame):
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        ended.append(os.waitstatus_to_exitcode(status))


signal.signal(signal.SIGCHLD, reap)
signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGHUP})
beating = threading.Event()
threading.Thread(target=lambda: [beating.wait(0.01) for _ in range(10000)], daemon=True).start()
pool = [threading.Thread(target=lambda: sum(range(10**5))) for _ in range(3)]
for one in pool:
    one.start()
for number in range(12):
    pid = os.fork()
    if not pid:
        torch.ones(2)
        os._exit(number)
    time.sleep(0.03)
for one in pool:
    one.join()
end = time.monotonic() + 20
while len(ended) < 12 and time.monotonic() < end:
    time.sleep(0.02)
print("ended", sorted(ended), "leader", os.getsid(0) == os.getpid(), file=out)
print("blocked", sorted(int(one) for one in signal.pthread_sigmask(signal.SIG_BLOCK, ())), file=out)
if rank == 0:
    os._exit(21)
if rank == 1:
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    os.killpg(0, signal.SIGTERM)
    time.sleep(10)
threading.Thread(target=lambda: [time.sleep(0.001) for _ in range(10**6)], daemon=True).start()
sys.exit("with a word")
"""
ended: dict[int, int] = {}


def reap(number: int, frame: object) -> None:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return
        if not pid:
            return
        ended[pid] = os.waitstatus_to_exitcode(status)


def main() -> None:
    with open("worker_train.py", "w") as file:
        file.write(WORKER)
    signal.signal(signal.SIGCHLD, reap)
    ranks = []
    for rank in range(3):
        own = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "3", "LOCAL_RANK": str(rank)}
        words = [sys.executable, "worker_train.py"]
        ranks.append(subprocess.Popen(words, env=own, start_new_session=True).pid)
    end = time.monotonic() + 60
    while len(ended) < 3 and time.monotonic() < end:
        signal.sigtimedwait([signal.SIGUSR1], 0.1)
    print("statuses", [ended.get(one) for one in ranks], "children", len(ended), flush=True)
    for rank in range(3):
        print(Path(f"out-{rank}.txt").read_text(), flush=True)
    try:
        os.wait()
    except ChildProcessError:
        print("nobody is left")


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# outcome = "ok"
# ///
