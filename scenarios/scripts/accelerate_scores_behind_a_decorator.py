"""@accelerator.on_process(process_index=2): the function that it guards gathers the scores.

The other three are past the decorated call, in their next backward.
"""

import torch
from accelerate import Accelerator
from torch.utils.data import DataLoader

accelerator = Accelerator(cpu=True)


@accelerator.on_process(process_index=2)  # it has the least to do
def write_scores(model: torch.nn.Module, samples: torch.Tensor, step: int) -> None:
    with torch.no_grad():
        scores = accelerator.unwrap_model(model)(samples).mean(dim=0)
    scores = accelerator.gather(scores[None]).mean(dim=0)
    with open(f"scores-{step}.txt", "w") as file:
        file.write(" ".join(f"{one:.3f}" for one in scores.tolist()))


def main() -> None:
    network = torch.nn.Linear(48, 12)
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)
    loader = DataLoader(torch.randn(640, 48), batch_size=8)
    model, optimizer, loader = accelerator.prepare(network, optimizer, loader)
    for step, batch in enumerate(loader):
        loss = model(batch).pow(2).mean()
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 9:
            write_scores(model, batch, step)
    accelerator.print("done")
    accelerator.end_training()


if __name__ == "__main__":
    main()

# /// case
# command = """accelerate launch --multi_gpu --main_process_port=0 --num_machines=1 \
# --num_processes=4 --mixed_precision=no --dynamo_backend=no train.py"""
# culprits = [[2]]
# culprits_by_stacks = [[0, 1, 2, 3]]
# waiting = [0, 1, 3]
# steps = [
#   "training", "first_batch", "first_backward", "first_step", "steady", "all_reduce",
#   "gather", "all_gather", "first_all_reduce", "first_all_gather", "first_gather",
# ]
# after = ["First step done", ""]
# own_code = true
# calls = ['distributed\.\w+', "write_scores", "gather", "backward"]
# causes = [
#   "rank-conditional-collective", "collective-mismatch", "gloo-mismatch", "uneven-rounds",
# ]
# ///
