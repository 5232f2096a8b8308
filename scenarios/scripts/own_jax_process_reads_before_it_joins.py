"""Three processes of JAX, which get their numbers as arguments: process 1 reads its vocabulary from
a pipe into which nobody writes, before it joins; the others wait in jax.distributed.initialize.
"""

import argparse
import subprocess
import sys

import jax


def read_vocabulary(path: str) -> list[str]:
    with open(path) as vocabulary:
        return vocabulary.read().split()


def work(number: int, options: argparse.Namespace) -> None:
    if number == 1:
        read_vocabulary(options.vocabulary)
    jax.distributed.initialize(f"127.0.0.1:{options.port}", 3, number)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("vocabulary")
    parser.add_argument("port", type=int)
    parser.add_argument("--process", type=int)
    options = parser.parse_args()
    if options.process is not None:
        return work(options.process, options)
    command = [sys.executable, "-u", *sys.argv]
    started = [subprocess.Popen([*command, f"--process={number}"]) for number in range(3)]
    for one in started:
        one.wait()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py $FIFO $PORT"
# world = "unopened_fifo"
# needs = ["jax"]
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["script"]
# after = [""]
# own_code = true
# calls = ["open"]
# causes = ["pipe-no-writer"]
# ///
