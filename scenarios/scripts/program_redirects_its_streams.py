"""A rank reads all its input, writes very many lines, puts its output elsewhere and back."""

import contextlib
import hashlib
import io
import os
import sys
import time
from pathlib import Path

import torch

os.environ.setdefault("RANK", "0")
text = sys.stdin.buffer.read()
print("read", len(text), hashlib.sha256(text).hexdigest(), "at its end:", sys.stdin.read() == "")
for number in range(30000):
    sys.stdout.write(f"line {number % 100}\n")
    if number % 3000 == 0:
        print("also", number % 100, file=sys.stderr)
sys.stdout.flush()
inside = io.StringIO()
with contextlib.redirect_stdout(inside), contextlib.redirect_stderr(inside):
    print(torch.ones(2).sum().item())
    print("to the other", file=sys.stderr)
before = os.dup(1)
with open("kept.txt", "wb") as file:
    os.dup2(file.fileno(), 1)
    print("into the file", flush=True)
    os.system("echo from a child")
    time.sleep(1)
os.dup2(before, 1)
print("inside:", inside.getvalue().split("\n"))
print("file:", Path("kept.txt").read_text().split("\n"), os.stat("kept.txt").st_size)
sys.stdout.reconfigure(line_buffering=False, encoding="ascii", errors="replace")
print("\u00e9 becomes a question mark")
sys.stdout.flush()
os.write(1, b"\x00 no text \x1b[31m\r\n")
sys.stderr.close()
sys.stdout.detach()
os.close(1)
os.close(2)
time.sleep(1)
os._exit(13)

# /// case
# command = "sh train.sh"
# outcome = "ok"
# status = 13
# [files]
# "train.sh" = """
# seq 1 200000 | python train.py
# """
# ///
