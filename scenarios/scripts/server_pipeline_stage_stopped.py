"""An engine with three stages of pipeline parallelism, a process each: a request goes from stage
to stage over pipes. Stage 2 has been stopped (SIGSTOP, as of a profiler that was ended before it
let go of it); the pipes in front of it fill up.

Stage 1 waits to write, stage 0 as well, the engine for the first answer, and the API server for
the engine.
"""

import argparse
import multiprocessing
import os
import signal
from multiprocessing.connection import Connection

import setproctitle

spawn = multiprocessing.get_context("spawn")
HIDDEN = bytes(1 << 16)


def run_stage(stage: int, inputs: Connection, outputs: Connection) -> None:
    setproctitle.setproctitle(f"textserve::Worker_PP{stage}")
    done = 0
    while True:
        request, hidden = inputs.recv()
        done += 1
        if stage == 2 and done == 3:
            os.kill(os.getpid(), signal.SIGSTOP)
        outputs.send((request, hidden))


def run_engine(requests: int, answers: Connection) -> None:
    setproctitle.setproctitle("textserve::Engine")
    first, inputs = spawn.Pipe()
    for stage in range(3):
        following, outputs = spawn.Pipe()
        spawn.Process(target=run_stage, args=(stage, inputs, outputs), daemon=True).start()
        inputs = following
        outputs.close()
    for request in range(requests):
        first.send((request, HIDDEN))
    for _ in range(requests):
        answers.send(inputs.recv()[0])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--requests", type=int, default=200)
    args = parser.parse_args()
    answers, theirs = spawn.Pipe()
    spawn.Process(target=run_engine, args=(args.requests, theirs)).start()
    for _ in range(args.requests):
        print(f"answer {answers.recv()}", flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --requests 200"
# needs = ["setproctitle"]
# culprits = [[-1]]
# steps = ["script", "arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['run_stage', 'kill', '^$']
# causes = ["stopped"]
# says = ['Worker_PP2', 'SIGSTOP|stopped']
# ///
