"""A controller talks to its workers over their stdin and stdout, each message with its length in
front. A library of worker 1 prints a notice to stdout when it is first used: the controller
takes its first four bytes for a length, and reads on for 1.2 billion bytes that nobody will
send.

Worker 1 has written its answer and waits for the next request; workers 0 and 2 wait as well.
"""

import argparse
import struct
import subprocess
import sys


class Worker:
    def __init__(self, number: int) -> None:
        words = [sys.executable, "worker.py", "--number", str(number)]
        self.process = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def ask(self, request: bytes) -> bytes:
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(struct.pack(">I", len(request)) + request)
        self.process.stdin.flush()
        (length,) = struct.unpack(">I", self.process.stdout.read(4))
        return self.process.stdout.read(length)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=3)
    args = parser.parse_args()
    workers = [Worker(number) for number in range(args.workers)]
    for request in (b"hello", b"embed"):
        for number, worker in enumerate(workers):
            print(f"worker {number}: {worker.ask(request).decode()}", flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --workers 3"
# culprits = [[0], [-1]]
# steps = ["script", "arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['ask', 'read']
# causes = ["deadlock", "nobody-sends", "child-process-stuck", "server-process-stuck"]
# says = ['stdin|stdout|pipe']
# [files]
# "worker.py" = '''
# """Answers requests."""
# import argparse
# import struct
# import sys
#
#
# def embed(number):
#     if number == 1:
#         print("Looking for a cache of embeddings")
#     return b"embedded"
#
#
# def serve(number):
#     while head := sys.stdin.buffer.read(4):
#         request = sys.stdin.buffer.read(struct.unpack(">I", head)[0])
#         answer = embed(number) if request == b"embed" else b"ready"
#         sys.stdout.flush()
#         sys.stdout.buffer.write(struct.pack(">I", len(answer)) + answer)
#         sys.stdout.buffer.flush()
#
#
# if __name__ == "__main__":
#     parser = argparse.ArgumentParser()
#     parser.add_argument("--number", type=int)
#     serve(parser.parse_args().number)
# '''
# ///
