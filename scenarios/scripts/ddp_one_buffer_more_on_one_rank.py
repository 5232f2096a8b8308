"""Buffers are sent round by hand before each round of evaluation; rank 2 of five has one more.

It restored an average of weights as a further buffer, and broadcasts it too, when the others go on
to add up their losses.
"""

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def send_buffers_round(module: torch.nn.Module) -> int:
    count = 0
    for _, buffer in sorted(module.named_buffers()):
        dist.broadcast(buffer, src=0)
        count += 1
    return count


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    net = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8), torch.nn.Linear(8, 1))
    model = DistributedDataParallel(net, broadcast_buffers=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(60):
        if rank == 2 and step == 29:
            net.register_buffer("average", torch.zeros(8))
        loss = model(torch.randn(4, 8)).pow(2).mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % 10 == 9:
            send_buffers_round(net)
            total = loss.detach().clone()
            dist.all_reduce(total)
    print(f"rank {rank} is done", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=5 train.py"
# culprits = [[2]]
# waiting = [0, 1, 3, 4]
# steps = ["training", "steady", "first_step", "broadcast", "first_broadcast", "all_reduce"]
# after = ["First step done", "First optimizer step done", "First all_reduce done", ""]
# own_code = true
# calls = ['broadcast', 'send_buffers_round']
# causes = ["collective-mismatch", "rank-conditional-collective", "uneven-rounds", "other-round"]
# ///
