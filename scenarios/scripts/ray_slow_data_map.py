"""Ray Data: a function that computes for a while is mapped over blocks, and the driver waits in
materialize(): healthy.
"""

import sys
import time
from typing import Any

import ray


def main() -> None:
    ray.init(num_cpus=2, include_dashboard=False)
    seconds = float(sys.argv[1]) / 2

    def score(batch: dict[str, Any]) -> dict[str, Any]:
        end, total = time.monotonic() + seconds, 0
        while time.monotonic() < end:
            total += sum(ord(letter) for letter in "once upon a time" * 500)
        batch["score"] = batch["id"] * (total > 0)
        return batch

    made = ray.data.range(400, override_num_blocks=4).map_batches(score).materialize()
    print(made.count(), "rows", flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py $AMOUNT"
# outcome = "ok"
# amount = 50.0
# needs = ["ray", "pyarrow", "pandas"]
# limit = 200
# ///
