"""A pipeline of a shell of three programs: the first reads texts, the second one makes tokens of
them in a pool, the third packs them. A worker of the second wants the lock of the vocabulary's
cache, which a process outside of the job has.

The third stage waits for input; the first has filled the pipe, and waits until it is read.
"""

import fcntl
import multiprocessing
import os
import sys


def read_texts() -> None:
    for number in range(200_000):
        print(f"text {number} " + "word " * 20)


def load_vocabulary() -> dict[str, int]:
    with open(os.environ["LOCK"], "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return {"text": 0, "word": 1}


def tokenize(line: str) -> list[int]:
    vocabulary = load_vocabulary()
    return [vocabulary.get(word, 2) for word in line.split()]


def make_tokens() -> None:
    with multiprocessing.get_context("spawn").Pool(2) as pool:
        for line in sys.stdin:
            print(*pool.apply(tokenize, (line,)))


def pack() -> None:
    rows = 0
    for line in sys.stdin:
        rows += len(line.split()) // 16
    print(f"{rows} rows", file=sys.stderr)


if __name__ == "__main__":
    {"read": read_texts, "tokens": make_tokens, "pack": pack}[sys.argv[1]]()

# /// case
# command = "sh prepare.sh"
# world = "held_lock"
# culprits = [[-1], [0]]
# steps = ["script"]
# after = [""]
# own_code = true
# calls = ['print', 'write', 'read_texts', 'apply', 'get', 'tokenize', 'flock', 'make_tokens']
# causes = ["file-lock-held", "lock-not-to-be-had"]
# says = ['cache\.lock']
# [files]
# "prepare.sh" = '''
# python train.py read | python train.py tokens | python train.py pack > packed.txt
# echo packed
# '''
# ///
