"""Healthy and slow: rank 0 has many small C files compiled; the others wait for its pipe.

They are started with the reading ends of pipes into which rank 0 writes one byte each.
"""

import argparse
import os
import subprocess
import sys
import time

WORLD = 4
parser = argparse.ArgumentParser()
parser.add_argument("--seconds", type=float, required=True)
args = parser.parse_args()


def build(seconds: float) -> None:
    source = "".join(f"double f{n}(double x) {{ return x * {n}.5 + f(x); }}\n" for n in range(400))
    with open("kernels.c", "w") as file:
        file.write("static double f(double x) { return x; }\n" + source)
    script = "for n in $(seq 1000); do [ $(date +%s) -lt $1 ] || break; gcc -O2 -c kernels.c; done"
    end = f"{time.time() + seconds:.0f}"
    subprocess.run(["sh", "-c", script, "sh", end], check=True)


def train(rank: int, world: int) -> None:
    ends = [int(one) for one in os.environ["ENDS"].split(",")]
    if rank == 0:
        build(args.seconds)
        os.write(ends[1], b"x" * (world - 1))
    else:
        os.read(ends[0], 1)
    print(f"rank {rank} trains", flush=True)


if "ENDS" not in os.environ:
    both = os.pipe()
    os.environ["ENDS"] = ",".join(map(str, both))


def main() -> None:
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]), WORLD)
        return
    ranks = []
    for rank in range(WORLD):
        own = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(WORLD), "LOCAL_RANK": str(rank)}
        ranks.append(subprocess.Popen([sys.executable, *sys.argv], env=own, pass_fds=both))
    sys.exit(max(one.wait() for one in ranks))


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 45.0
# ///
