"""A client of a generation service sends the prompts of a conversation over one stream of gRPC,
each after the answer to the one before; the service collects the whole stream before it answers.

Neither is at fault alone: the client waits for the first answer, and the handler for the second
prompt. No call has a time limit.
"""

from __future__ import annotations

import queue
import subprocess
import sys
from collections.abc import Iterator
from concurrent import futures

import grpc
import setproctitle


class Generation(grpc.GenericRpcHandler):
    """/Generation/Chat: prompts in, texts out."""

    def service(self, details: grpc.HandlerCallDetails) -> grpc.RpcMethodHandler | None:
        return grpc.stream_stream_rpc_method_handler(self.chat)

    def chat(self, prompts: Iterator[bytes], context: grpc.ServicerContext) -> Iterator[bytes]:
        batch = list(prompts)
        for prompt in batch:
            yield prompt.upper()


class Conversation:
    def __init__(self, channel: grpc.Channel) -> None:
        self.prompts: queue.Queue[bytes | None] = queue.Queue()
        chat = channel.stream_stream("/Generation/Chat")
        self.answers = chat(iter(self.prompts.get, None), wait_for_ready=True)

    def say(self, prompt: str) -> str:
        self.prompts.put(prompt.encode())
        return next(self.answers).decode()


def serve(port: str) -> None:
    setproctitle.setproctitle("generation: server")
    server = grpc.server(futures.ThreadPoolExecutor(4))
    server.add_generic_rpc_handlers((Generation(),))
    server.add_insecure_port(f"127.0.0.1:{port}")
    server.start()
    server.wait_for_termination()


def main() -> None:
    if sys.argv[2:] == ["serve"]:
        return serve(sys.argv[1])
    service = subprocess.Popen([sys.executable, *sys.argv, "serve"])
    with grpc.insecure_channel(f"127.0.0.1:{sys.argv[1]}") as channel:
        conversation = Conversation(channel)
        for turn in range(3):
            print(conversation.say(f"turn {turn}"), flush=True)
    service.terminate()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py $PORT"
# needs = ["grpc", "setproctitle"]
# culprits = [[0], [-1]]
# steps = ["script"]
# after = [""]
# own_code = true
# calls = ['grpc', 'say', 'chat', '_next']
# causes = ["child-process-stuck", "server-process-stuck", "deadlock", "unknown"]
# says = ['chat|generation: server|child']
# ///
