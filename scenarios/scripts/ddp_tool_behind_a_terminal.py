"""Rank 1 of three steers a tool by a terminal of its own (pty) and waits for its prompt; the tool
asks first whether its licence is accepted, and waits for an answer.
"""

import os
import pty
import subprocess
import sys

import torch
import torch.distributed as dist

工具 = """
import sys
if input("accept the licence (yes/no)? ") == "yes":
    while True:
        print(len(input("> ")), flush=True)
"""


class Größenmesser:
    """Mißt Texte mit einem Werkzeug, das ein Terminal will."""

    def __enter__(self):
        self.herr, sklave = pty.openpty()
        self.werkzeug = subprocess.Popen(
            [sys.executable, "-c", 工具], stdin=sklave, stdout=sklave, stderr=sklave
        )
        os.close(sklave)
        self.warte_auf(b"> ")
        return self

    def __exit__(self, *grund: object) -> None:
        self.werkzeug.terminate()

    def warte_auf(self, zeichen: bytes) -> bytes:
        gelesen = b""
        while not gelesen.endswith(zeichen):
            gelesen += os.read(self.herr, 1024)
        return gelesen

    def miß(self, text: str) -> int:
        os.write(self.herr, text.encode() + b"\n")
        return int(self.warte_auf(b"> ").split()[-2])


def größen(rang: int) -> list[int]:
    if rang != 1:
        return [3, 4]
    with Größenmesser() as messer:
        return [messer.miß(text) for text in ("eins", "zwei")]


def main() -> None:
    dist.init_process_group("gloo")
    summe = torch.tensor(größen(dist.get_rank()))
    dist.all_reduce(summe)
    print(summe.tolist(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=3 train.py"
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["script", "training"]
# after = ["Process group ready", "Process group initialized", ""]
# own_code = true
# calls = ['warte_auf', '__enter__', 'read', 'Größenmesser']
# causes = ["prompt", "child-process-stuck"]
# ///
