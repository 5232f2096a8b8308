"""A notebook (a kernel of ipykernel, driven by a client): a cell starts a tokenizer as a program,
and reads what that prints; the tokenizer opens its vocabulary, a named pipe that nobody writes.

The kernel is busy in that cell; the client waits for the end of the cell.
"""

import os

from jupyter_client.manager import KernelManager

CELLS = [
    "import subprocess, sys",
    "words = [sys.executable, 'tokenize_file.py', sys.path[0] or '.']",
    "tokens = subprocess.run(words, stdout=subprocess.PIPE, check=True).stdout.split()",
    "print(len(tokens))",
]


def main() -> None:
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel(env={**os.environ})
    client = manager.blocking_client()
    client.start_channels()
    client.wait_for_ready()
    for cell in CELLS:
        client.execute_interactive(cell, output_hook=print)
    client.stop_channels()
    manager.shutdown_kernel(now=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# world = "unopened_fifo"
# needs = ["ipykernel", "jupyter_client"]
# culprits = [[0], [-1]]
# steps = ["script"]
# after = [""]
# own_code = true
# calls = ['execute_interactive', 'open', 'read_vocabulary', 'run', 'communicate', 'poll', '^$']
# causes = ["pipe-no-writer"]
# says = ['feed|pipe|tokenize_file|read_vocabulary']
# [files]
# "tokenize_file.py" = '''
# """A tokenizer as a program."""
# import os
#
#
# def read_vocabulary(path):
#     with open(path) as vocabulary:
#         return vocabulary.read().split()
#
#
# print(*read_vocabulary(os.environ["FIFO"]))
# '''
# ///
