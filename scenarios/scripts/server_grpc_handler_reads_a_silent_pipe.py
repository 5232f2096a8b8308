"""A trainer asks the reward service that it has started, by gRPC and without a time limit; the
handler there reads the reward model's answers from a pipe into which nobody writes.

The main thread of the service only waits for its end.
"""

import subprocess
import sys
from concurrent import futures

import grpc


def score(request: bytes, context: grpc.ServicerContext) -> bytes:
    with open(sys.argv[1]) as answers:
        return answers.read().encode()


def serve(port: str) -> None:
    server = grpc.server(futures.ThreadPoolExecutor(4))
    handler = grpc.unary_unary_rpc_method_handler(score)
    service = grpc.method_handlers_generic_handler("Reward", {"Score": handler})
    server.add_generic_rpc_handlers((service,))
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


def train(port: str) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{port}") as channel:
        ask = channel.unary_unary("/Reward/Score")
        for step in range(10):
            print(step, ask(b"rollout", wait_for_ready=True), flush=True)


def main() -> None:
    if sys.argv[3:] == ["serve"]:
        return serve(sys.argv[2])
    service = subprocess.Popen([sys.executable, "-u", *sys.argv, "serve"])
    train(sys.argv[2])
    service.terminate()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py $FIFO $PORT"
# world = "unopened_fifo"
# needs = ["grpc"]
# culprits = [[0], [-1]]
# steps = ["script"]
# after = [""]
# own_code = true
# calls = ["open", "grpc"]
# causes = ["pipe-no-writer", "child-process-stuck", "server-process-stuck"]
# says = ['score']
# ///
