"""multiprocessing.Pool: the initializer of its workers opens a vocabulary that is not there. Each
worker ends by that error, and the pool starts another one in its place, for ever.

The parent waits in map() for results: no worker comes to its first task.
"""

import multiprocessing
from multiprocessing.pool import Pool
from pathlib import Path

vocabulary: dict[str, int] = {}


def load_vocabulary(path: str) -> None:
    words = Path(path).read_text(encoding="utf-8").split()
    vocabulary.update({word: number for number, word in enumerate(words)})


def tokenize(text: str) -> list[int]:
    return [vocabulary.get(word, 0) for word in text.split()]


def tokenize_all(pool: Pool, texts: list[str]) -> list[list[int]]:
    return pool.map(tokenize, texts, chunksize=4)


def main() -> None:
    texts = [f"once upon a time {number}" for number in range(64)]
    context = multiprocessing.get_context("spawn")
    with context.Pool(2, initializer=load_vocabulary, initargs=("vocabulary.txt",)) as pool:
        print(len(tokenize_all(pool, texts)), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[0], [-1]]
# steps = ["script"]
# after = [""]
# own_code = true
# ends = true
# busy = true
# calls = ['map', 'tokenize_all', 'load_vocabulary', '^$']
# causes = ["restarted-in-vain", "worker-dead", "child-died"]
# says = ['FileNotFoundError', 'again']
# ///
