"""Five prompts are split between three processes, and the answers gathered after each prompt: the
last process has one prompt only, and waits for everyone.
"""

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object


def answer(model: torch.nn.Module, prompt: int) -> float:
    with torch.no_grad():
        return model(torch.full((1, 8), float(prompt))).sum().item()


def main() -> None:
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(8, 2)
    answers: list[float] = []
    with accelerator.split_between_processes(list(range(5))) as prompts:
        for prompt in prompts:
            answers += gather_object([answer(model, prompt)])
    accelerator.wait_for_everyone()
    accelerator.print(len(answers))
    accelerator.end_training()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[2]]
# culprits_by_stacks = [[0, 1, 2]]
# waiting = [0, 1]
# steps = [
#   "training", "accelerator", "first_all_gather_object", "first_gather_object", "barrier",
#   "first_barrier", "collectives",
# ]
# after = ["First all_gather_object done", "Accelerator configured", ""]
# own_code = true
# calls = ['distributed\.\w+', 'gather_object', 'wait_for_everyone']
# causes = [
#   "rank-conditional-collective", "collective-mismatch", "uneven-rounds", "uneven-batches",
#   "peer-out-of-batches",
# ]
# ///
