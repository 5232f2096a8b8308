"""Ray: an engine may be restarted; it was killed once in the middle of its load, as where memory
runs out, and left the marker by which one engine at a time loads. Its next start waits for that.

The driver waits in ray.get for the engine; its constructor looks at the marker now and then.
"""

import os
import signal
import time
from pathlib import Path

import ray


@ray.remote(max_restarts=3, max_task_retries=-1)
class Engine:
    def __init__(self, folder: str) -> None:
        marker = Path(folder) / "weights.loading"
        while marker.exists():
            time.sleep(0.5)
        marker.write_text(str(os.getpid()))
        self.weights = [0.0] * 1024
        if not (Path(folder) / "weights.cache").exists():
            (Path(folder) / "weights.cache").touch()
            os.kill(os.getpid(), signal.SIGKILL)  # the first load takes more than there is
        marker.unlink()

    def generate(self, prompt: str) -> str:
        return f"{prompt} {len(self.weights)}"


def main() -> None:
    ray.init(num_cpus=2, include_dashboard=False)
    engine = Engine.remote(os.getcwd())
    print(ray.get(engine.generate.remote("2 + 2 =")), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# needs = ["ray"]
# culprits = [[0], [-1]]
# steps = ["ray_get", "script"]
# after = ["Ray started", "Actor asked for", ""]
# own_code = true
# calls = ['ray\.get', 'Engine', 'sleep', '__init__']
# says = ['Engine|weights\.loading']
# ///
