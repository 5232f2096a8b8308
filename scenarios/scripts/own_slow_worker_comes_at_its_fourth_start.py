"""A supervisor starts its worker again each time it ends by an error: the socket of the database is
there only after a while. The fourth worker connects, and does its work; nothing hangs.
"""

import argparse
import subprocess
import sys
import time
from pathlib import Path

WORK = """
import sys, time
from pathlib import Path
if not Path("database.sock").exists():
    time.sleep(1)
    raise ConnectionRefusedError("database.sock: nobody listens")
seconds = float(sys.argv[1])
for part in range(6):
    time.sleep(seconds / 6)  # the database answers slowly
    print(f"part {part}", flush=True)
"""


def supervise(seconds: float) -> None:
    for attempt in range(1, 6):
        if attempt == 4:
            Path("database.sock").touch()
        with Path("worker.log").open("a", encoding="utf-8") as log:
            worker = subprocess.Popen([sys.executable, "-c", WORK, str(seconds)], stderr=log)
            if worker.wait() == 0:
                return
        print(f"attempt {attempt} ended with {worker.returncode}", flush=True)
        time.sleep(2)
    raise SystemExit("the worker did not come")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seconds", type=float, required=True)
    supervise(parser.parse_args().seconds)

# /// case
# command = "python train.py --seconds $AMOUNT"
# outcome = "ok"
# amount = 50.0
# limit = 240.0
# ///
