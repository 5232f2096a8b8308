"""Ray Serve: a deployment that takes one request at a time asks itself, by its own handle, for the
parts of a long prompt, and waits; that request stays in the queue of its only replica.

The driver waits for the answer of the first request.
"""

import os

import ray
from ray import serve


@serve.deployment(max_ongoing_requests=1)
class Writer:
    def split(self, prompt: str) -> list[str]:
        return [prompt[: len(prompt) // 2], prompt[len(prompt) // 2 :]]

    async def write(self, prompt: str) -> str:
        if len(prompt) < 8:
            return prompt.upper()
        own = serve.get_deployment_handle("Writer", app_name="writer")
        return "".join([await own.write.remote(part) for part in self.split(prompt)])


def main() -> None:
    ray.init(num_cpus=4, include_dashboard=False)
    serve.start(http_options={"port": int(os.environ["PORT"])})
    handle = serve.run(Writer.bind(), name="writer")
    print(handle.write.remote("ping").result(), flush=True)
    print(handle.write.remote("once upon a time").result(), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# needs = ["ray", "fastapi", "uvicorn"]
# culprits = [[0], [-1]]
# steps = ["ray_get", "script", "ray_init"]
# after = ["Ray started", "Actor asked for", "Answer of Ray there", ""]
# own_code = true
# calls = ['ray\.get', 'result', 'write', 'main']
# says = ['Writer']
# limit = 300
# ///
