"""An API server starts an engine as a command of its own and reads its "ready" line; the
engine's two loader threads map the shards of its weights, and shard 2 of 3 stands on a mount
that does not answer (a named pipe that nobody opens, here).

The API server waits at the engine's output, the engine's main thread for its loaders.
"""

import argparse
import os
import subprocess
import sys


def start_engine(weights: str) -> str:
    words = [sys.executable, "engine.py", weights]
    with subprocess.Popen(words, stdout=subprocess.PIPE, text=True) as engine:
        assert engine.stdout is not None
        for line in engine.stdout:
            if line.startswith("ready"):
                return line
    raise RuntimeError("the engine did not start")


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.parse_args()
    print(start_engine(os.environ["FIFO"]), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# world = "unopened_fifo"
# culprits = [[0], [-1]]
# steps = ["script", "arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['start_engine', 'readline', 'read', 'load_shard', 'open', 'main']
# causes = ["pipe-no-writer"]
# says = ['/feed']
# [files]
# "engine.py" = '''
# """Loads its shards in two threads, and says when it is ready."""
# import concurrent.futures
# import pathlib
# import sys
# import time
#
#
# def load_shard(path):
#     time.sleep(0.3)
#     with open(path, "rb") as file:
#         return len(file.read())
#
#
# def main(weights):
#     shards = []
#     for number in range(3):
#         shards.append(f"shard{number}.bin")
#         pathlib.Path(shards[-1]).write_bytes(bytes(1 << 20))
#     shards[1] = weights
#     with concurrent.futures.ThreadPoolExecutor(2) as pool:
#         print("loaded", sum(pool.map(load_shard, shards)), flush=True)
#     print("ready", flush=True)
#     time.sleep(3600)
#
#
# main(sys.argv[1])
# '''
# ///
