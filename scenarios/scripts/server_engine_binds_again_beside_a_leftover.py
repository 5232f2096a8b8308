"""An engine binds its port for the workers' handshake and tries again for as long as it is taken; a
scheduler of yesterday's server, which init has adopted, still listens there.

The API server waits for the engine's pipe.
"""

import argparse
import asyncio
import errno
import multiprocessing
import socket
import time
from multiprocessing.connection import Connection

import setproctitle

spawn = multiprocessing.get_context("spawn")


def bind(port: int) -> socket.socket:
    while True:
        listener = socket.socket()
        try:
            listener.bind(("127.0.0.1", port))
            return listener
        except OSError as error:
            listener.close()
            if error.errno != errno.EADDRINUSE:
                raise
            time.sleep(2)


def run_engine(port: int, front: Connection) -> None:
    setproctitle.setproctitle("VLLM::EngineCore")
    listener = bind(port)
    listener.listen()
    front.send("ready")
    front.recv()


async def serve(port: int) -> None:
    ours, theirs = spawn.Pipe()
    spawn.Process(target=run_engine, args=(port, theirs)).start()
    theirs.close()
    print("waiting for the engine", flush=True)
    print(await asyncio.get_running_loop().run_in_executor(None, ours.recv), flush=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--master-port", type=int, required=True)
    asyncio.run(serve(parser.parse_args().master_port))

# /// case
# command = "python train.py --master-port $PORT"
# world = "leftover_server"
# needs = ["setproctitle"]
# culprits = [[0], [-1]]
# steps = ["script", "arguments"]
# after = ["", "Args parsed"]
# own_code = true
# calls = ['bind', 'sleep', 'run_engine', 'serve', 'asyncio\.run', 'recv']
# causes = ["port-taken", "port-in-use", "retry-loop", "polling-loop"]
# says = ['EngineCore|port \d+']
# ///
