"""A parameter server saves its shard with the shard's lock in its hand, into a pipe whose reader
has not started; both ranks wait for the parameters of their next step.

The server's main thread takes connections, a thread each waits for the lock, and a fourth, the
saver, has it. The ranks are no process group: they only share the server.
"""

import os
import pickle
import socket
import sys
import threading
import time

import torch


def ask(server: socket.socket, what: tuple) -> object:
    stream = server.makefile("rwb")
    pickle.dump(what, stream)
    stream.flush()
    return pickle.load(stream)


def connect(port: int) -> socket.socket:
    while True:
        try:
            return socket.create_connection(("127.0.0.1", port))
        except OSError:
            time.sleep(0.2)


def train(rank: int, port: int) -> None:
    server, model = connect(port), torch.nn.Linear(4, 1)
    for step in range(20):
        weights = ask(server, ("pull", rank))
        loss = model(torch.ones(2, 4)).mean() * float(weights[0])
        loss.backward()
        ask(server, ("push", [rank + step]))
        print(f"rank {rank} step {step}", flush=True)
        time.sleep(0.2)


if __name__ == "__main__":
    threading.current_thread().name = "trainer"
    train(int(os.environ["RANK"]), int(sys.argv[1]))

# /// case
# command = "bash train.sh $PORT $FIFO"
# world = "unopened_fifo"
# culprits = [[-1]]
# culprits_by_stacks = [[0, 1], []]
# waiting = [0, 1]
# steps = ["script", "import_torch", "backward", "first_backward"]
# after = ["torch imported", "", "First backward done", "Backward done"]
# own_code = true
# calls = ['open', 'save', 'pull', 'ask', 'load', 'push']
# causes = ["pipe-no-writer", "server-process-stuck", "endpoint-silent"]
# says = ['server|pipe|save']
# [files]
# "train.sh" = """
# python server.py $1 $2 &
# RANK=0 WORLD_SIZE=2 LOCAL_RANK=0 python train.py $1 &
# RANK=1 WORLD_SIZE=2 LOCAL_RANK=1 python train.py $1
# wait
# """
# "server.py" = '''
# """The parameters of one shard."""
# import pickle
# import socketserver
# import sys
# import threading
# import time
#
# lock, weights = threading.Lock(), [1.0, 2.0]
#
#
# class Shard(socketserver.StreamRequestHandler):
#     def handle(self):
#         while True:
#             verb, value = pickle.load(self.rfile)
#             self.wfile.write(pickle.dumps(self.pull() if verb == "pull" else self.push(value)))
#
#     def pull(self):
#         with lock:
#             return list(weights)
#
#     def push(self, gradient):
#         with lock:
#             weights[0] += 0.01 * gradient[0]
#
#
# def save_now_and_then(path):
#     time.sleep(4)
#     with lock, open(path, "wb") as file:
#         pickle.dump(weights, file)
#
#
# class Server(socketserver.ThreadingTCPServer):
#     allow_reuse_address = daemon_threads = True
#
#
# with Server(("127.0.0.1", int(sys.argv[1])), Shard) as server:
#     threading.Thread(target=save_now_and_then, args=(sys.argv[2],), name="saver").start()
#     server.serve_forever()
# '''
# ///
