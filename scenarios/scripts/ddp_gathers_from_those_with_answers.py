"""gather_object: rank 3 of five has no answer of its share to hand in, and does not take part.

It is in the broadcast of the score already; the others gather their answers at rank 0.
"""

import torch
import torch.distributed as dist

QUESTIONS = 18


def answers(rank: int, world: int) -> list[tuple[int, float]]:
    found = []
    for question in range(rank, QUESTIONS, world):
        score = float(torch.sigmoid(torch.randn(16).sum()))
        if rank != 3:  # none of its questions is in the language that is scored
            found.append((question, score))
    return found


def collect(mine: list[tuple[int, float]]) -> list[tuple[int, float]]:
    if not mine:
        return []
    rank, world = dist.get_rank(), dist.get_world_size()
    all_of_them: list[list[tuple[int, float]]] | None = [[]] * world if rank == 0 else None
    dist.gather_object(mine, all_of_them, dst=0)
    return [one for part in all_of_them or [] for one in part]


def main() -> None:
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    together = collect(answers(rank, world))
    score = torch.tensor(sum(value for _, value in together))
    dist.broadcast(score, src=0)
    print(f"rank {rank}: score {score.item():.3f}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=5 train.py"
# culprits = [[3]]
# waiting = [0, 1, 2, 4]
# steps = [
#   "process_group", "ddp_wrap", "training", "first_gather_object", "first_collective",
#   "first_broadcast", "first_all_gather",
# ]
# after = ["Process group ready", "First gather_object done", ""]
# own_code = true
# calls = ['broadcast', 'distributed\.\w+', 'train\.main']
# causes = ["rank-conditional-collective", "collective-mismatch"]
# ///
