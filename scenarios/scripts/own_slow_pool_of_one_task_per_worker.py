"""A pool whose workers retire after one task each (maxtasksperchild=1): its children are always
young, and end with status 0. A task takes some seconds; nothing hangs.
"""

import argparse
import multiprocessing
import time


def convert(part: int, seconds: float) -> int:
    time.sleep(seconds)  # an archive that lies far away
    return part


def main(seconds: float) -> None:
    with multiprocessing.Pool(2, maxtasksperchild=1) as pool:
        parts = [(part, seconds / 4) for part in range(8)]
        print(pool.starmap(convert, parts, chunksize=1), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    main(parser.parse_args().seconds)

# /// case
# command = "python train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 48.0
# limit = 240.0
# ///
