"""joblib: four shards are counted by two workers of loky; a worker takes the lock of the cache for
each, and a process outside of the job has it. The main process waits in Parallel().

Both workers stand in that lock.
"""

import fcntl
import sys

from joblib import Parallel, delayed


def count(shard: int, cache: str) -> int:
    with open(cache) as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        return shard * 100


def main() -> None:
    counted = Parallel(n_jobs=2)(delayed(count)(shard, sys.argv[1]) for shard in range(4))
    print(sum(counted), "rows", flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py $LOCK"
# world = "held_lock"
# needs = ["joblib"]
# culprits = [[0], [-1]]
# steps = ["script"]
# after = [""]
# own_code = true
# calls = ['Parallel', '__call__', 'count', 'flock']
# causes = ["file-lock-held"]
# says = ['cache\.lock']
# ///
