"""Workers that meet before each round at a barrier that rank 0 serves by XML-RPC."""

import os
import threading
import time
import xmlrpc.client
import xmlrpc.server

import torch

torch.set_num_threads(1)
RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def serve_barrier():
    barrier = threading.Barrier(SIZE)

    def meet(rank):
        barrier.wait()
        return True

    server = xmlrpc.server.SimpleXMLRPCServer(("", 9370), logRequests=False)
    server.register_function(meet)
    server.serve_forever()


def connect():
    proxy = xmlrpc.client.ServerProxy(f"http://{os.environ['MASTER_ADDR']}:9370")
    while True:
        try:
            proxy.system.listMethods()
        except ConnectionRefusedError:
            time.sleep(0.5)  # the server starts up
        except xmlrpc.client.Fault:
            return proxy


def main():
    if RANK == 0:
        threading.Thread(target=serve_barrier, daemon=True).start()
    coordinator = connect()
    model = torch.nn.Linear(8, 8)
    for _ in range(20):
        coordinator.meet(RANK)
        model(torch.randn(4, 8)).sum().backward()


main()
