"""Ray Serve: an application of two replicas is up and nobody asks it; its driver sleeps until it is
told to end: healthy.
"""

import os
import sys
import time

import ray
from ray import serve


@serve.deployment(num_replicas=2)
class Model:
    async def __call__(self, request: object) -> str:
        return "once upon a time"


def main() -> None:
    ray.init(num_cpus=4, include_dashboard=False)
    serve.start(http_options={"port": int(os.environ["PORT"])})
    serve.run(Model.bind(), name="writer")
    print("up", flush=True)
    end = time.monotonic() + float(sys.argv[1])
    while time.monotonic() < end:
        time.sleep(10)
    serve.shutdown()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py $AMOUNT"
# outcome = "ok"
# amount = 70.0
# needs = ["ray", "fastapi", "uvicorn"]
# limit = 150
# ///
