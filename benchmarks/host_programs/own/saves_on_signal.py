"""A training that saves when the scheduler says so: a node that is to be freed waits for that."""

import os
import signal

import torch
import torch.distributed as dist

torch.set_num_threads(1)


def wait_for_scheduler():
    """SIGUSR1 is blocked from the beginning, so that no step is cut in two."""
    if os.path.exists("/tmp/to-be-freed") and os.environ["LOCAL_RANK"] == "1":
        signal.sigwait({signal.SIGUSR1})
        torch.save({"step": 5}, "/tmp/freed.pt")


def main():
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    dist.init_process_group("gloo")
    model = torch.nn.Linear(8, 1)
    for step in range(10):
        model.zero_grad()
        model(torch.randn(4, 8)).mean().backward()
        dist.all_reduce(model.weight.grad)
        if step == 5:
            wait_for_scheduler()
    dist.destroy_process_group()


main()
