"""A ProcessPoolExecutor by spawn: a task's argument, a tokenizer, reads its merges again where it
is unpickled; that is a named pipe which nobody opens. The worker stands in its queue's get(), in
the tokenizer's __setstate__, and the main process waits in Future.result().
"""

import concurrent.futures
import multiprocessing
import sys
from typing import Any


class Tokenizer:
    def __init__(self, path: str) -> None:
        self.path, self.merges = path, {"t h": 0, "th e": 1}

    def __getstate__(self) -> dict[str, Any]:
        return {"path": self.path}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.path = state["path"]
        with open(self.path) as file:
            self.merges = {line: number for number, line in enumerate(file)}

    def count(self, text: str) -> int:
        return sum(text.count(pair[0]) for pair in self.merges)


def count(tokenizer: Tokenizer, text: str) -> int:
    return tokenizer.count(text)


def main(path: str) -> None:
    tokenizer = Tokenizer(path)
    spawn = multiprocessing.get_context("spawn")
    with concurrent.futures.ProcessPoolExecutor(2, mp_context=spawn) as pool:
        print(list(pool.map(abs, range(8))), flush=True)
        done = pool.submit(count, tokenizer, "the theory of the thing")
        print(done.result(), flush=True)


if __name__ == "__main__":
    main(sys.argv[1])

# /// case
# command = "python train.py $FIFO"
# world = "unopened_fifo"
# culprits = [[0], [-1]]
# steps = ["script"]
# after = [""]
# own_code = true
# calls = ['result', '__setstate__', 'open', 'main']
# causes = ["pipe-no-writer"]
# says = ['/feed|__setstate__']
# ///
