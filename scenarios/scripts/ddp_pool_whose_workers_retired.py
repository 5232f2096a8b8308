"""Rank 1 reads its documents with a ProcessPoolExecutor whose workers end after three tasks each;
with all of them queued at once nobody starts another worker, and the seventh result never comes.

It is an error of concurrent.futures (max_tasks_per_child): the workers have ended well, and the
executor waits. Rank 0 waits for rank 1 in all_gather_object, rank 2 too.
"""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path


def read_document(number: int) -> int:
    return len(Path(__file__).read_text()) + number


def read_all(rank: int) -> int:
    context = multiprocessing.get_context("spawn")
    count = 16 if rank == 1 else 4  # of the second shard there is more
    with ProcessPoolExecutor(2, mp_context=context, max_tasks_per_child=3) as pool:
        asked = [pool.submit(read_document, number) for number in range(count)]
        return sum(one.result() for one in asked)


def main() -> None:
    import torch.distributed as dist

    dist.init_process_group("gloo")
    size = read_all(dist.get_rank())
    sizes = [0] * dist.get_world_size()
    dist.all_gather_object(sizes, size)
    print(sizes, flush=True)
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
# calls = ['result', 'read_all', 'wait', 'submit', 'ProcessPool']
# causes = ["executor-without-workers", "pool-worker-lost", "worker-dead", "unknown"]
# says = ['pool|worker|ProcessPool|result']
# ///
