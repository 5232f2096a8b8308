"""A file:// rendezvous that an earlier job has left behind.

The file is the store: the new ranks find the old ones' answers in it (torch's documentation of
init_process_group: "the file must be removed before"; pytorch/pytorch#13750). With gloo the
addresses of dead processes refuse connections. A control: a crash must be called a crash.

Left to chance all of it may go well, or hang: an old answer counts only where it is read before the
new one is written, and of two ranks the one with the higher address connects, the other one waits
(gloo/transport/tcp/pair.cc). Here rank 0 comes a second later, and the file is that of an earlier
job whose rank 0 had a low address: so rank 1 reads it, and connects.
"""

from __future__ import annotations

from typing import Any

from hangbisect.zoo.case import Case, Truth


def make_trainer(given: Any) -> Any:
    """Return the Trainer, after a process group by way of a file that has been used before."""
    import itertools
    import os
    import time

    import psutil
    import torch
    import torch.distributed as dist
    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    me = rank_number(given)

    def meet(number: int) -> None:
        file = f"file://{os.path.abspath(f'rendezvous{number}')}"
        dist.init_process_group("gloo", init_method=file, rank=me, world_size=2)

    def earlier(number: int) -> bool:
        """Run the job before this one, to no good end; return whether rank 0's address was low."""
        pid = os.fork()
        if not pid:
            meet(number)
            sockets = psutil.Process().net_connections("tcp")
            ports = [one.laddr.port for one in sockets if one.status == psutil.CONN_LISTEN]
            # Compared as the network has it: the low byte counts most on this kind of machine.
            low = torch.tensor([int(min(port % 256 for port in ports) < 8)])
            dist.broadcast(low, 0)
            os._exit(int(low))
        return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 1

    number = next(n for n in itertools.count() if earlier(n))
    if me == 0:
        time.sleep(1.0)
    meet(number)
    dist.destroy_process_group()
    return run_usual_step(given)


CASE = Case(
    id="I48",
    title="a file:// rendezvous left by an earlier job: a crash",
    cluster="C1",
    reports=("pytorch/pytorch#13750",),
    truth=Truth(
        outcome="crash",
        culprit=(0, 1),
        checkpoint="trainer",
        component=("strategy", "trainer"),
        cause=("stale-rendezvous-file",),
    ),
    uses={"trainer": "make_trainer"},
)
