"""A farm of tasks over send and recv: rank 0 hands out prompts, and tells all but rank 3 to stop.

The list of those who are still at work lost rank 3 when its answer came twice in a row; rank 3
waits for its next prompt, and all others are in the barrier behind the farm.
"""

import torch
import torch.distributed as dist

PROMPTS = 23
STOP = -1.0


class Farm:
    """Rank 0's end: a prompt to whoever has answered, until there is none."""

    def __init__(self, world: int) -> None:
        self.at_work = list(range(1, world))
        self.latest = 0

    def hand_out(self, worker: int, prompt: float) -> None:
        dist.send(torch.tensor([prompt]), dst=worker)

    def serve(self) -> float:
        total, left = 0.0, list(range(PROMPTS))
        for worker in self.at_work:
            self.hand_out(worker, float(left.pop()))
        answer, open_prompts = torch.zeros(1), len(self.at_work)
        turn = 0
        while open_prompts:
            worker = 1 + turn % (dist.get_world_size() - 1)
            turn += 1
            dist.recv(answer, src=worker)
            total += answer.item()
            open_prompts -= 1
            if left:
                self.hand_out(worker, float(left.pop()))
                open_prompts += 1
            elif worker == 3:
                self.at_work.remove(worker)  # taken for one that answered twice
        for worker in self.at_work:
            self.hand_out(worker, STOP)
        return total


def work() -> int:
    done, prompt = 0, torch.zeros(1)
    while True:
        dist.recv(prompt, src=0)
        if prompt.item() == STOP:
            return done
        dist.send(prompt.sqrt(), dst=0)
        done += 1


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    said = f"score {Farm(dist.get_world_size()).serve():.2f}" if rank == 0 else f"did {work()}"
    print(f"rank {rank}: {said}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=5 train.py"
# culprits = [[0], [3], [0, 3]]
# waiting = [1, 2, 4]
# steps = [
#   "process_group", "training", "first_barrier", "barrier", "first_recv", "recv", "first_send",
# ]
# after = ["Process group ready", "First recv done", "First send done", ""]
# own_code = true
# calls = ['recv', 'barrier', 'work', 'train\.main']
# causes = ["message-left-out", "rank-conditional-collective", "uneven-rounds"]
# ///
