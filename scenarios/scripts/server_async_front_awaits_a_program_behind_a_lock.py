"""An asyncio front starts its engine as a program and awaits the first line that it prints; the
engine has started a worker that waits for the lock of a cache, which another program has.

The engine itself reads its worker's pipe. Three processes, one behind the other.
"""

import argparse
import asyncio
import sys


async def start_engine(lock: str) -> asyncio.subprocess.Process:
    engine = await asyncio.create_subprocess_exec(
        sys.executable, "-u", "engine.py", lock, stdout=asyncio.subprocess.PIPE
    )
    assert engine.stdout is not None
    line = await engine.stdout.readline()
    print("engine:", line.decode().strip(), flush=True)
    return engine


async def main(lock: str) -> None:
    engine = await start_engine(lock)
    await engine.wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--lock", required=True)
    asyncio.run(main(parser.parse_args().lock))

# /// case
# command = "python train.py --lock $LOCK"
# world = "held_lock"
# needs = ["setproctitle"]
# culprits = [[0], [-1]]
# steps = ["script", "arguments"]
# after = ["", "Args parsed"]
# own_code = true
# calls = ['asyncio\.run', 'flock', 'load', 'recv', 'main']
# causes = ["file-lock-held"]
# says = ['cache\.lock']
# [files]
# "engine.py" = '''
# """An engine with one worker."""
# import fcntl
# import multiprocessing
# import sys
#
# import setproctitle
#
# spawn = multiprocessing.get_context("spawn")
#
#
# def load(path):
#     with open(path) as file:
#         fcntl.flock(file, fcntl.LOCK_EX)
#         return bytes(1 << 20)
#
#
# def work(pipe, path):
#     setproctitle.setproctitle("engine::worker0")
#     weights = load(path)
#     pipe.send(len(weights))
#     pipe.recv()
#
#
# def main():
#     setproctitle.setproctitle("engine::main")
#     ours, theirs = spawn.Pipe()
#     worker = spawn.Process(target=work, args=(theirs, sys.argv[1]))
#     worker.start()
#     theirs.close()
#     print("ready", ours.recv())
#     worker.join()
#
#
# if __name__ == "__main__":
#     main()
# '''
# ///
