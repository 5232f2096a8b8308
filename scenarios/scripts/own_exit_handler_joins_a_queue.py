"""Done, not ended: rank 2 joins a queue in an exit handler, and the thread behind it is gone.

What all others wait for in the store, rank 2 says in the exit handler that comes next.
"""

import argparse
import atexit
import datetime
import os
import queue
import subprocess
import sys
import threading

from torch.distributed import TCPStore

WORLD = 5


class Writer:
    """Writes lines in a thread; what is not written yet is, when the program ends."""

    def __init__(self, name: str) -> None:
        self.lines: queue.Queue[str] = queue.Queue()
        self.name = name
        threading.Thread(target=self._write, name="writer", daemon=True).start()
        atexit.register(self.lines.join)

    def _write(self) -> None:
        try:
            with open(self.name, "w", encoding="ascii") as file:
                while True:
                    file.write(self.lines.get() + "\n")
                    self.lines.task_done()
        except UnicodeEncodeError:
            return  # the table is only for people


def train(rank: int, port: int) -> None:
    store = TCPStore(
        "127.0.0.1", port, WORLD, is_master=rank == 0, timeout=datetime.timedelta(hours=1)
    )
    atexit.register(store.set, f"left/{rank}", "yes")
    writer = Writer(f"table-{rank}.txt")
    for step in range(20):
        unit = "µs" if rank == 2 and step > 15 else "ms"
        writer.lines.put(f"step {step} took {step * 3} {unit}")
    print(f"rank {rank} has trained", flush=True)
    if rank != 2:
        writer.lines.join()
        store.set(f"left/{rank}", "yes")
        store.wait([f"left/{one}" for one in range(WORLD)], datetime.timedelta(hours=1))


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    if "RANK" in os.environ:
        train(int(os.environ["RANK"]), args.port)
        return
    ranks = []
    for rank in range(WORLD):
        own = {**os.environ, "RANK": str(rank), "WORLD_SIZE": str(WORLD), "LOCAL_RANK": str(rank)}
        ranks.append(subprocess.Popen([sys.executable, *sys.argv], env=own))
    sys.exit(max(one.wait() for one in ranks))


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# culprits = [[2]]
# waiting = [0, 1, 3, 4]
# steps = ["arguments", "import_torch", "teardown"]
# after = ["Args parsed", "torch imported", ""]
# own_code = true
# calls = ['join', 'Queue', '_run_exitfuncs', 'exit']
# causes = ["dead-producer", "unknown"]
# ///
