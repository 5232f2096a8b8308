"""concurrent.futures: each worker of a ProcessPoolExecutor loads the model in its initializer,
under the lock of the cache, which a process outside of the job has.

The main process waits in Executor.map for the first result. No worker has got a task yet.
"""

import fcntl
import multiprocessing
import os
from concurrent.futures import ProcessPoolExecutor

MODEL: dict[str, int] = {}


def load_model(lock: str) -> None:
    with open(lock) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        MODEL.update({word: number for number, word in enumerate(["once", "upon", "a"])})


def embed(text: str) -> list[int]:
    return [MODEL.get(word, -1) for word in text.split()]


def main() -> None:
    texts = ["once upon a time", "there was a time"] * 50
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(
        2, mp_context=spawn, initializer=load_model, initargs=(os.environ["LOCK"],)
    ) as pool:
        print(sum(map(len, pool.map(embed, texts, chunksize=10))), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# world = "held_lock"
# culprits = [[0], [-1]]
# steps = ["script"]
# after = [""]
# own_code = true
# calls = ['load_model', 'flock', 'result', 'map', 'wait']
# causes = ["file-lock-held"]
# says = ['cache\.lock', 'load_model|flock']
# ///
