"""Healthy: an engine of two workers waits for its next request over ZeroMQ while the trainer, which
is one process of the same job, takes long over its optimizer's step, twice; then all end.

The step runs in one call of a native library that says nothing (the accelerator: a sleep).
"""

import argparse
import subprocess
import sys
import time

import zmq


def optimizer_step(seconds: float) -> None:
    time.sleep(seconds)  # the accelerator


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    engine = zmq.Context.instance().socket(zmq.REQ)
    engine.bind("ipc://engine.sock")
    process = subprocess.Popen([sys.executable, "engine.py"])
    for step in range(3):
        engine.send_pyobj([f"prompt {step}"] * 4)
        print(len(engine.recv_pyobj()), flush=True)
        if step < 2:
            optimizer_step(args.seconds / 2)
    engine.send_pyobj(None)
    process.wait()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --seconds $AMOUNT"
# needs = ["zmq"]
# outcome = "ok"
# amount = 80.0
# limit = 240.0
# [files]
# "engine.py" = '''
# """Two workers and a front, which waits for requests."""
# import multiprocessing
#
# import zmq
#
#
# def work(prompts, texts):
#     while (prompt := prompts.get()) is not None:
#         texts.put(prompt.upper())
#
#
# if __name__ == "__main__":
#     forkserver = multiprocessing.get_context("forkserver")
#     prompts, texts = forkserver.Queue(), forkserver.Queue()
#     workers = [forkserver.Process(target=work, args=(prompts, texts)) for _ in range(2)]
#     for one in workers:
#         one.start()
#     front = zmq.Context.instance().socket(zmq.REP)
#     front.connect("ipc://engine.sock")
#     while (asked := front.recv_pyobj()) is not None:
#         for one in asked:
#             prompts.put(one)
#         front.send_pyobj([texts.get() for _ in asked])
#     for _ in workers:
#         prompts.put(None)
#     for one in workers:
#         one.join()
# '''
# ///
