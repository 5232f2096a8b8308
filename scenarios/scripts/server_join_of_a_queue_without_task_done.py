"""A batch server hands its requests to three workers by a JoinableQueue and waits in join()
until all are done; worker 1 skips requests that are too long, and forgets task_done() for those.

All workers have done what there is and wait for the next request at the queue. Nothing has died.
"""

import argparse
import multiprocessing
import time

import setproctitle

spawn = multiprocessing.get_context("spawn")


def generate(length: int) -> int:
    time.sleep(0.05)
    return length * 2


def run_worker(number: int, requests: "multiprocessing.JoinableQueue[int]") -> None:
    setproctitle.setproctitle(f"batchserver: worker {number}")
    while True:
        length = requests.get()
        if length > 512:
            print(f"worker {number}: {length} is too long", flush=True)
            continue
        generate(length)
        requests.task_done()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=30)
    args = parser.parse_args()
    requests = spawn.JoinableQueue()
    for number in range(3):
        spawn.Process(target=run_worker, args=(number, requests), daemon=True).start()
    for number in range(args.requests):
        requests.put(1024 if number == 17 else 64)
    requests.join()
    print("all requests are done", flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --requests 30"
# needs = ["setproctitle"]
# culprits = [[0]]
# steps = ["script", "arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['join', 'main', 'wait']
# says = ['join|task_done|worker']
# ///
