"""A supervisor runs one evaluation after another in a process of its own; each prints one error
about pictures that it leaves out, and is replaced when it is done. Slow, and nothing hangs.
"""

import argparse
import subprocess
import sys

EVALUATE = """
import sys, time
print("OSError: picture 3 cannot be read", file=sys.stderr, flush=True)
time.sleep(float(sys.argv[1]))
print(f"part {sys.argv[2]} done", flush=True)
"""


def evaluate_all(parts: int, seconds: float) -> None:
    for part in range(parts):
        words = [sys.executable, "-c", EVALUATE, str(seconds / parts), str(part)]
        subprocess.run(words, check=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    evaluate_all(8, parser.parse_args().seconds)

# /// case
# command = "python train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 60.0
# limit = 240.0
# ///
