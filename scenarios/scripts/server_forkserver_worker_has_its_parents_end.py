"""A server of three workers (forkserver): each gets an end of a pipe. Worker 1 was handed its
parent's end by mistake, so both read the same end, and what it has said lies at the other one.

Workers 0 and 2 are up and wait for a task; the server waits for worker 1 to say that it is up.
"""

import argparse
import multiprocessing
from multiprocessing.connection import Connection

import setproctitle

context = multiprocessing.get_context("forkserver")


def run_worker(number: int, pipe: Connection) -> None:
    setproctitle.setproctitle(f"embed::worker-{number}")
    pipe.send({"worker": number, "up": True})
    while (task := pipe.recv()) is not None:
        pipe.send(task)


class Server:
    def __init__(self, workers: int, standby: int) -> None:
        self.pipes = [context.Pipe() for _ in range(workers)]
        self.processes = []
        for number, (ours, theirs) in enumerate(self.pipes):
            end = ours if number == standby else theirs
            process = context.Process(target=run_worker, args=(number, end))
            process.start()
            self.processes.append(process)

    def wait_until_up(self) -> None:
        for ours, _ in self.pipes:
            print(ours.recv(), flush=True)

    def stop(self) -> None:
        for (ours, _), process in zip(self.pipes, self.processes, strict=True):
            ours.send(None)
            process.join()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--standby", type=int, default=1)
    args = parser.parse_args()
    server = Server(3, args.standby)
    server.wait_until_up()
    server.stop()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --standby 1"
# needs = ["setproctitle"]
# culprits = [[0], [-1]]
# steps = ["script", "arguments"]
# after = ["", "Args parsed"]
# own_code = true
# calls = ['recv', 'wait_until_up', 'run_worker']
# causes = ["nobody-sends", "deadlock", "unknown", "child-process-stuck"]
# says = ['worker-1|pipe|socket|recv']
# ///
