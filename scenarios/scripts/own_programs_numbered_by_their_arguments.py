"""A launcher starts four programs, which get their numbers as arguments and meet at a socket of the
first; number 2 reads its shard from a pipe into which nobody writes.

The launcher waits for the end of the first.
"""

import subprocess
import sys


def main() -> None:
    workers = [
        subprocess.Popen(
            [sys.executable, "-u", "worker.py", f"--worker-id={number}", "--of=4", *sys.argv[1:]]
        )
        for number in range(4)
    ]
    for worker in workers:
        worker.wait()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py $FIFO $PORT"
# world = "unopened_fifo"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["script"]
# after = [""]
# own_code = true
# calls = ["open"]
# causes = ["pipe-no-writer"]
# [files]
# "worker.py" = '''
# """One of several workers, which sum up what each has read."""
# import argparse
# import multiprocessing.connection as connection
# import time
#
# def reach(place):
#     while True:
#         try:
#             return connection.Client(place)
#         except ConnectionRefusedError:
#             time.sleep(0.1)
#
# def read_shard(number, step):
#     if number == 2 and step == 3:
#         with open(options.shard) as shard:
#             return len(shard.read())
#     return step
#
# parser = argparse.ArgumentParser()
# parser.add_argument("--worker-id", type=int)
# parser.add_argument("--of", type=int)
# parser.add_argument("shard")
# parser.add_argument("port", type=int)
# options = parser.parse_args()
# place = "127.0.0.1", options.port
# if options.worker_id:
#     first, others = reach(place), []
# else:
#     listener = connection.Listener(place, backlog=options.of)
#     first, others = None, [listener.accept() for _ in range(options.of - 1)]
# for step in range(6):
#     total = read_shard(options.worker_id, step)
#     if first is not None:
#         first.send(total)
#         total = first.recv()
#     else:
#         total += sum([one.recv() for one in others])
#         for one in others:
#             one.send(total)
#     print(step, total)
# '''
# ///
