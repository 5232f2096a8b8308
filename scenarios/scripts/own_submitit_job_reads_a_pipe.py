"""submitit on this machine: a sweep of three jobs, each a process of its own by the LocalExecutor;
the second job opens its shard, a named pipe that nobody writes. The sweep waits for its result.

The other two are done. The sweep looks at the state of its jobs now and then.
"""

import sys

import submitit


def count(path: str) -> int:
    with open(path, "rb") as shard:
        return len(shard.read())


def main() -> None:
    executor = submitit.LocalExecutor(folder="logs")
    executor.update_parameters(timeout_min=60)
    jobs = [executor.submit(count, path) for path in (__file__, sys.argv[1], __file__)]
    print("bytes:", [job.result() for job in jobs], flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py $FIFO"
# world = "unopened_fifo"
# needs = ["submitit"]
# culprits = [[0], [-1], [1]]
# steps = ["script"]
# after = [""]
# own_code = true
# calls = ['open', 'count', 'result']
# says = ['pipe|fifo|count']
# causes = ["pipe-no-writer"]
# ///
