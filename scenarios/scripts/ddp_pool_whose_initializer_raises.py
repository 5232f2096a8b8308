"""Rank 1 tokenizes by a multiprocessing.Pool whose initializer raises, since its vocabulary is not
where it looks: the pool replaces each worker that ends, for ever, and map() never returns.

Ranks 0 and 2 wait for rank 1 in a barrier. Each worker says at the terminal what it raised.
"""

import multiprocessing
import os
from pathlib import Path

vocabulary: dict[str, int] = {}


def load_vocabulary(file: str) -> None:
    for number, word in enumerate(Path(file).read_text().split()):
        vocabulary[word] = number


def tokenize(text: str) -> list[int]:
    return [vocabulary.get(word, 0) for word in text.split()]


def prepare(rank: int) -> int:
    file = f"{os.environ.get('VOCABULARY', 'vocabulary')}{rank}.txt"
    context = multiprocessing.get_context("forkserver")
    with context.Pool(2, initializer=load_vocabulary, initargs=(file,)) as pool:
        return sum(map(len, pool.map(tokenize, ["once upon a time"] * 64)))


def main() -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    print(f"{prepare(dist.get_rank())} tokens", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["process_group", "script"]
# after = ["Process group ready", ""]
# own_code = true
# ends = true
# busy = true
# calls = ['map', 'prepare', 'load_vocabulary', 'get', 'wait']
# causes = ["restarted-in-vain", "pool-worker-lost", "child-died", "worker-dead"]
# says = ['FileNotFoundError|status 1|exit(ed)? (with )?1|again']
# limit = 240
# [files]
# "vocabulary0.txt" = "once upon a time"
# "vocabulary2.txt" = "once upon a time"
# ///
