"""Three processes of JAX sum up and meet at each step; at the fourth, process 2 alone asks for the
lock on its checkpoint, which it has taken already by another descriptor, the others are in
sync_global_devices.
"""

import argparse
import fcntl
import subprocess
import sys

import jax
import jax.numpy as jnp


def save(step: int) -> None:
    with open("state.lock", "w") as first, open("state.lock", "w") as second:
        fcntl.flock(first, fcntl.LOCK_EX)
        fcntl.flock(second, fcntl.LOCK_EX)


def work(number: int, port: int) -> None:
    from jax.experimental import multihost_utils

    jax.config.update("jax_cpu_collectives_implementation", "gloo")
    jax.distributed.initialize(f"127.0.0.1:{port}", 3, number)
    for step in range(6):
        print(step, multihost_utils.process_allgather(jnp.ones(4) * step).sum(), flush=True)
        if step == 3 and number == 2:
            save(step)
        multihost_utils.sync_global_devices(f"step {step}")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("port", type=int)
    parser.add_argument("--process_id", type=int)
    options = parser.parse_args()
    if options.process_id is not None:
        return work(options.process_id, options.port)
    command = [sys.executable, "-u", *sys.argv]
    started = [subprocess.Popen([*command, "--process_id", str(number)]) for number in range(3)]
    for one in started:
        one.wait()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py $PORT"
# needs = ["jax"]
# culprits = [[2]]
# waiting = [0, 1]
# steps = ["script"]
# after = [""]
# own_code = true
# calls = ["flock"]
# causes = ["file-lock-held", "self-deadlock", "deadlock"]
# ///
