"""A coordinator listens with multiprocessing's Listener and a key; a probe has connected to its
port and keeps the connection, and accept() waits for the probe's answer to the challenge.

accept() does the greeting itself, so nobody else is served: both trainers have connected and
wait in Client() for the coordinator's challenge. What stands still is the coordinator.
"""

import argparse
import os
import subprocess
import sys
import time
from multiprocessing.connection import Client, Connection, Listener

KEY, WORLD = b"of this job", 2


def coordinate(port: int) -> None:
    shards = [[f"shard-{number}"] for number in range(WORLD)]
    with Listener(("127.0.0.1", port), authkey=KEY) as listener:
        for shard in shards:
            with listener.accept() as trainer:
                trainer.send(shard)


def connect(port: int) -> Connection:
    time.sleep(2)  # the coordinator comes up
    while True:
        try:
            return Client(("127.0.0.1", port), authkey=KEY)
        except ConnectionRefusedError:
            time.sleep(0.2)


def train(rank: int, port: int) -> None:
    with connect(port) as coordinator:
        print(f"rank {rank}: {coordinator.recv()}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    if os.environ.get("ROLE") == "coordinator":
        coordinate(args.port)
        return
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]), args.port)
        return
    words = [sys.executable, *sys.argv]
    coordinator = subprocess.Popen(words, env={**os.environ, "ROLE": "coordinator"})
    probe = subprocess.Popen([sys.executable, "probe.py", str(args.port)])
    ranks = []
    for rank in range(WORLD):
        own = {"RANK": str(rank), "WORLD_SIZE": str(WORLD), "LOCAL_RANK": str(rank)}
        ranks.append(subprocess.Popen(words, env={**os.environ, **own}))
    status = max(one.wait() for one in ranks)
    probe.terminate()
    coordinator.wait()
    sys.exit(status)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# culprits = [[-1]]
# culprits_by_stacks = [[0, 1]]
# waiting = [0, 1]
# steps = ["arguments", "script"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['accept', 'coordinate', 'deliver_challenge', 'recv', 'Client', 'connect', 'sleep']
# causes = ["nobody-sends", "server-process-stuck", "endpoint-silent", "child-process-stuck"]
# says = ['probe\.py|accept|deliver_challenge|coordinate']
# [files]
# "probe.py" = '''
# """Is the coordinator up? It keeps the connection as long as it is."""
# import socket
# import sys
# import time
#
# while True:
#     try:
#         connection = socket.create_connection(("127.0.0.1", int(sys.argv[1])))
#         break
#     except OSError:
#         time.sleep(0.1)
# print("the coordinator is up", flush=True)
# while True:
#     time.sleep(30)
# '''
# ///
