"""Rank 3 of five cleans a text with a regular expression that backtracks for ever.

`re` holds the GIL meanwhile. The others wait in the barrier behind the preparation.
"""

import re

import torch
import torch.distributed as dist

LINKS = re.compile(r"^(https?://)?([\w-]+\.?)+(/[\w-]*)*$")


def clean(texts: list[str]) -> list[str]:
    return [text for text in texts if not LINKS.match(text)]


def texts_of(rank: int) -> list[str]:
    made = [f"a sentence of document {place}" for place in range(500)]
    if rank == 3:
        made[321] = "a" * 60 + "!"
    return made


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.set_num_threads(1)
    kept = clean(texts_of(rank))
    dist.barrier()
    count = torch.tensor(float(len(kept)))
    dist.all_reduce(count)
    print(f"{count.item():.0f} texts", flush=True)
    dist.destroy_process_group()


main()

# /// case
# command = "torchrun --standalone --nproc_per_node=5 train.py"
# culprits = [[3]]
# waiting = [0, 1, 2, 4]
# steps = ["barrier", "process_group", "training"]
# after = ["Process group ready"]
# own_code = true
# busy = true
# calls = ["clean", "match", "<listcomp>"]
# causes = ["busy-loop", "gil-held", "one-rank-works-alone", "native-call"]
# ///
