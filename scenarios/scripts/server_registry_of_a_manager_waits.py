"""Four workers of a server enter themselves in a registry that a manager process serves
(BaseManager); its method asks a service for a licence, under a lock, and that never answers for
worker 0. The others wait for their turn in the manager.

The main process waits for all four to be ready. Only the manager's thread for worker 0 stands
still of itself.
"""

import argparse
import multiprocessing
import os
import threading
import urllib.request
from multiprocessing.managers import BaseManager

import setproctitle


class Registry:
    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.entries: dict[int, str] = {}

    def enter(self, number: int) -> int:
        with self.lock:
            with urllib.request.urlopen(f"{os.environ['SERVICE']}/licence/{number}") as answer:
                self.entries[number] = answer.read().decode()
            return len(self.entries)


class Registries(BaseManager):
    pass


Registries.register("Registry", Registry)
spawn = multiprocessing.get_context("spawn")


def name_manager() -> None:
    setproctitle.setproctitle("textserve::Registry")


def run_worker(number: int, registry: Registry) -> None:
    setproctitle.setproctitle(f"textserve::Worker_{number}")
    print(f"worker {number}: entry {registry.enter(number)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--workers", type=int, default=4)
    args = parser.parse_args()
    manager = Registries(ctx=spawn)
    manager.start(name_manager)
    registry = manager.Registry()  # type: ignore[attr-defined]
    workers = [spawn.Process(target=run_worker, args=(n, registry)) for n in range(args.workers)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --workers 4"
# world = "silent_service"
# needs = ["setproctitle"]
# culprits = [[-1]]
# steps = ["script", "arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['enter', 'urlopen', 'read', 'recv']
# causes = ["endpoint-silent"]
# says = ['Registry', '127\.0\.0\.1:\d+']
# ///
