"""An API server starts its engine by spawn and hands it the vocabulary, which is more than a
pipe takes; the engine's process imports its plugins first, and one of them waits for the lock of
a build that a process outside has.

The API server stands in Process.start(), in its write of what it hands on; the engine does not
read it before its imports are done.
"""

import argparse
import multiprocessing
import os

if __name__ == "__mp_main__":  # an engine's process needs them
    import plugin  # noqa: F401


def run_engine(vocabulary: list[str], port: int) -> None:
    print(f"engine: {len(vocabulary)} tokens, port {port}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    vocabulary = [f"token {number}" for number in range(200_000)]
    spawn = multiprocessing.get_context("spawn")
    engine = spawn.Process(target=run_engine, args=(vocabulary, args.port), name="engine")
    engine.start()
    engine.join()
    print(f"engine ended with {engine.exitcode}, pid {os.getpid()}", flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# world = "held_lock"
# culprits = [[-1], [0]]
# steps = ["script", "arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['build', 'flock', 'start', 'main', 'plugin', 'import']
# causes = ["file-lock-held", "lock-not-to-be-had"]
# says = ['cache\.lock']
# [files]
# "plugin.py" = '''
# """Kernels that are built when they are first imported."""
# import fcntl
# import os
#
#
# def build():
#     with open(os.environ["LOCK"], "w") as lock:
#         fcntl.flock(lock, fcntl.LOCK_EX)
#
#
# build()
# '''
# ///
