"""A server runs each model in a stub of its own (as a Python backend does) and waits for a byte
in shared memory that says the stub is up. The stub of the second model ended in its import of a
package that is not installed; its parent polls the byte and never asks whether the stub lives.

What the stub wrote of it stands in a file. The first stub is up, and waits for requests.
"""

import argparse
import mmap
import pathlib
import subprocess
import sys
import time

import setproctitle

MODELS = ("embedder", "reranker")


def start_stub(model: str) -> mmap.mmap:
    flags = pathlib.Path(f"{model}.shm")
    flags.write_bytes(bytes(4096))
    with open(f"{model}.log", "w") as log:
        words = [sys.executable, "stub.py", model, str(flags)]
        subprocess.Popen(words, stdin=subprocess.PIPE, stdout=log, stderr=log)
    with flags.open("r+b") as file:
        return mmap.mmap(file.fileno(), 4096)


def wait_until_up(model: str, flags: mmap.mmap) -> None:
    while not flags[0]:
        time.sleep(0.05)
    print(f"{model} is up", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--title", default="modelserver")
    args = parser.parse_args()
    setproctitle.setproctitle(args.title)
    flags = [start_stub(model) for model in MODELS]
    for model, one in zip(MODELS, flags, strict=True):
        wait_until_up(model, one)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --title modelserver"
# needs = ["setproctitle"]
# culprits = [[0], [-1]]
# steps = ["script", "arguments"]
# after = ["Args parsed", ""]
# own_code = true
# ends = true
# calls = ['wait_until_up', 'main', 'sleep', '^$', '<module>']
# causes = ["child-died", "worker-dead"]
# says = ['status 1|exit(ed)? (with )?1|code 1|ModuleNotFoundError|ended']
# [files]
# "stub.py" = '''
# """Runs a model, and answers at its stdin."""
# import mmap
# import sys
#
# if sys.argv[1] == "reranker":
#     import flash_reranker
#
#
# def main(flags):
#     with open(flags, "r+b") as file:
#         memory = mmap.mmap(file.fileno(), 4096)
#     memory[0] = 1
#     sys.stdin.readline()
#
#
# main(sys.argv[2])
# '''
# ///
