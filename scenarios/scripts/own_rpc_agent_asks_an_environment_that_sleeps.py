"""torch's RPC: an agent asks three environments for a step by rpc_async and waits for all of them;
the third one has stopped itself by a signal, as where its memory was to be looked at.

The other environments have answered and wait in rpc.shutdown(); the agent waits for the future.
"""

import os
import signal

import torch.distributed.rpc as rpc
import torch.multiprocessing as mp

ENVIRONMENTS = 3


def step(action: int) -> int:
    if rpc.get_worker_info().name == "environment2" and action == 4:
        os.kill(os.getpid(), signal.SIGSTOP)
    return action * 2


def roll_out(steps: int) -> int:
    total = 0
    for action in range(steps):
        names = [f"environment{n}" for n in range(ENVIRONMENTS)]
        asked = [rpc.rpc_async(name, step, args=(action,), timeout=0) for name in names]
        total += sum(one.wait() for one in asked)
    return total


def run(rank: int) -> None:
    name = "agent" if rank == 0 else f"environment{rank - 1}"
    rpc.init_rpc(name, rank=rank, world_size=ENVIRONMENTS + 1)
    if rank == 0:
        print("reward", roll_out(8), flush=True)
    rpc.shutdown()


if __name__ == "__main__":
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = os.environ["PORT"]
    mp.spawn(run, nprocs=ENVIRONMENTS + 1)

# /// case
# command = "python train.py"
# culprits = [[3]]
# waiting = [0, 1, 2]
# steps = ["script", "rpc", "init_rpc", "rpc_init"]
# after = ["RPC ready", "torch imported", ""]
# own_code = true
# calls = ['init_rpc', 'step', 'kill', 'wait', 'shutdown', '^$', 'run', '_run_function']
# causes = ["stopped"]
# says = ['stopped|SIGSTOP|signal']
# ///
