"""joblib: eight shards are counted by two workers of loky, each for a while, and the main process
waits in Parallel(): healthy.
"""

import sys
import time

from joblib import Parallel, delayed


def count(shard: int, seconds: float) -> int:
    end, total = time.monotonic() + seconds, 0
    while time.monotonic() < end:
        total += sum(ord(letter) for letter in "once upon a time" * 500)
    return shard if total else 0


def main() -> None:
    each = float(sys.argv[1]) / 4
    print(sum(Parallel(n_jobs=2)(delayed(count)(shard, each) for shard in range(8))), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py $AMOUNT"
# outcome = "ok"
# amount = 50.0
# needs = ["joblib"]
# limit = 150
# ///
