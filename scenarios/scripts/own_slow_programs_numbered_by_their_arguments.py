"""A launcher starts three programs, which get their numbers as arguments; each converts its own
shards, the last for much longer than the others, and silently.
"""

import hashlib
import subprocess
import sys
import time


def convert(seconds: float) -> str:
    text, end = b"", time.monotonic() + seconds
    while time.monotonic() < end:
        text = hashlib.sha256(text).digest()
    return text.hex()


def main() -> None:
    if sys.argv[1] == "--shard":
        print(convert(float(sys.argv[4]) if sys.argv[2] == "2" else 2.0), flush=True)
        return
    started = [
        [sys.executable, "-u", __file__, "--shard", str(shard), *sys.argv[1:]] for shard in range(3)
    ]
    for converter in [subprocess.Popen(command) for command in started]:
        converter.wait()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --seconds $AMOUNT"
# outcome = "ok"
# ///
