"""A ZMQ front keeps the identity its engine registered with; the engine reconnects under another
one after its weights are there, and the front's request goes to the old one.

A ROUTER drops what is for an identity it does not know, so both poll for what never comes.
"""

import multiprocessing
import sys

import setproctitle
import zmq

spawn = multiprocessing.get_context("spawn")


def connect(port: int, identity: bytes) -> zmq.Socket:
    socket = zmq.Context.instance().socket(zmq.DEALER)
    socket.setsockopt(zmq.IDENTITY, identity)
    socket.connect(f"tcp://127.0.0.1:{port}")
    return socket


def run_engine(port: int) -> None:
    setproctitle.setproctitle("rollserve::EngineCore")
    first = connect(port, b"engine-loading")
    first.send(b"HELLO")
    first.recv()
    first.close()
    socket = connect(port, b"engine-0")
    socket.send(b"READY")
    while True:
        request = socket.recv()
        socket.send(request.upper())


def main(port: int) -> None:
    router = zmq.Context.instance().socket(zmq.ROUTER)
    router.bind(f"tcp://127.0.0.1:{port}")
    spawn.Process(target=run_engine, args=(port,), daemon=True).start()
    engine, _ = router.recv_multipart()
    router.send_multipart([engine, b"INIT"])
    _, ready = router.recv_multipart()
    print(ready.decode(), flush=True)
    router.send_multipart([engine, b"generate"])
    print(router.recv_multipart(), flush=True)


if __name__ == "__main__":
    main(int(sys.argv[1]))

# /// case
# command = "python train.py $PORT"
# needs = ["setproctitle", "zmq"]
# culprits = [[-1], [0]]
# steps = ["script"]
# after = [""]
# own_code = true
# calls = ['recv', 'recv_multipart', 'run_engine', 'main']
# causes = ["nobody-sends", "server-process-stuck", "child-process-stuck"]
# says = ['EngineCore|run_engine|recv']
# ///
