"""A rank closes its descriptors, lowers its limits, drops its folder, becomes itself again."""

import os
import resource
import shutil
import subprocess
import sys
import tempfile

WORKER = r"""
import os, resource, shutil, sys, tempfile, time

turn = int(sys.argv[1])
if turn:
    os.chdir("/")
import torch

out = os.fdopen(os.dup(1), "w", buffering=1)
kept = os.dup2(out.fileno(), 200)
os.closerange(3, 200)
os.closerange(201, 4096)
os.close(0)
os.close(1)
os.close(2)
sys.stdout = sys.stderr = sys.stdin = None
first = os.open("/dev/null", os.O_RDWR)
os.dup2(200, 1)
os.dup2(first, 2)
os.set_inheritable(200, True)
say = lambda *words: os.write(1, (" ".join(map(str, words)) + "\n").encode())
say("turn", turn, "first free descriptor", first, sorted(os.listdir("/proc/self/fd"))[:3])
os.umask(0o077 if turn else 0o777)
resource.setrlimit(resource.RLIMIT_NOFILE, (210, 210))
resource.setrlimit(resource.RLIMIT_FSIZE, (5000, 5000))
home = tempfile.mkdtemp(dir="/tmp")
os.chmod(home, 0o700)
os.chdir(home)
shutil.rmtree(home)
try:
    os.getcwd()
except FileNotFoundError as error:
    say("no folder:", error.errno)
total = 0.0
for step in range(20):
    total += torch.full((3,), float(step)).sum().item()
    time.sleep(0.05)
say("total", total, "threads", len(os.listdir("/proc/self/task")) >= 1, "umask", oct(os.umask(0)))
if turn < 2:
    os.execv(sys.executable, [sys.executable, sys.argv[2], str(turn + 1), sys.argv[2]])
os._exit(9)
"""


def main() -> None:
    with open("worker_train.py", "w") as file:
        file.write(WORKER)
    path = os.path.abspath("worker_train.py")
    for rank in range(2):
        own = {**os.environ, "RANK": str(rank), "WORLD_SIZE": "2", "LOCAL_RANK": str(rank)}
        words = [sys.executable, path, "0", path]
        done = subprocess.run(words, env=own, stdout=subprocess.PIPE)
        print(rank, done.returncode, done.stdout.decode(), flush=True)
    own = tempfile.mkdtemp()
    os.chdir(own)
    shutil.rmtree(own)
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    sys.stdout.flush()
    os.closerange(3, 64)
    os._exit(11)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# outcome = "ok"
# status = 11
# ///
