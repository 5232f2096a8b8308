"""A gRPC scheduler answers a worker's registration when all three workers have registered, and it
has two threads for calls: the third registration stays in its queue.

Each worker waits in its call. All processes live, and none of them computes.
"""

import argparse
import multiprocessing
import threading
from concurrent import futures

import grpc
import setproctitle

spawn = multiprocessing.get_context("spawn")


class Scheduler:
    def __init__(self, workers: int) -> None:
        self.all_here = threading.Condition()
        self.workers, self.registered = workers, set[bytes]()

    def register(self, request: bytes, context: grpc.ServicerContext) -> bytes:
        with self.all_here:
            self.registered.add(request)
            self.all_here.notify_all()
            self.all_here.wait_for(lambda: len(self.registered) == self.workers)
        return b"begin"


def run_worker(number: int, port: int) -> None:
    setproctitle.setproctitle(f"infer::worker{number}")
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        register = channel.unary_unary("/Scheduler/Register")
        print(number, register(str(number).encode(), wait_for_ready=True), flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--workers", type=int, default=3)
    args = parser.parse_args()
    scheduler = Scheduler(args.workers)
    server = grpc.server(futures.ThreadPoolExecutor(max_workers=2))
    handler = grpc.unary_unary_rpc_method_handler(scheduler.register)
    service = grpc.method_handlers_generic_handler("Scheduler", {"Register": handler})
    server.add_generic_rpc_handlers((service,))
    server.add_insecure_port(f"127.0.0.1:{args.port}")
    server.start()
    workers = [
        spawn.Process(target=run_worker, args=(number, args.port)) for number in range(args.workers)
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    server.stop(None)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT --workers 3"
# needs = ["grpc", "setproctitle"]
# culprits = [[0]]
# steps = ["script", "arguments"]
# after = ["", "Args parsed"]
# own_code = true
# calls = ['register', 'wait', 'main', 'join']
# causes = [
#   "request-threads-full",
#   "pool-waits-for-itself", "executor-without-workers",
#   "thread-stuck", "deadlock", "server-process-stuck",
# ]
# says = ['register']
# ///
