"""Healthy and slow: a pipeline of a shell of three programs; the last one uploads what it gets, a
little at a time with pauses, so the first has filled its pipe and waits most of the time.
"""

import sys
import time


def read_texts() -> None:
    for number in range(6_000):
        print(f"text {number} " + "word " * 20)


def make_tokens() -> None:
    for line in sys.stdin:
        print(*(len(word) for word in line.split()))


def upload(seconds: float) -> None:
    parts = 0
    while part := sys.stdin.read(12_000):
        parts += len(part)
        time.sleep(seconds / 24)
    print(f"{parts} bytes", file=sys.stderr)


if __name__ == "__main__":
    if sys.argv[1] == "upload":
        upload(float(sys.argv[2]))
    else:
        {"read": read_texts, "tokens": make_tokens}[sys.argv[1]]()

# /// case
# command = "sh prepare.sh $AMOUNT"
# outcome = "ok"
# amount = 50.0
# limit = 300
# [files]
# "prepare.sh" = '''
# python train.py read | python train.py tokens | python train.py upload $1
# '''
# ///
