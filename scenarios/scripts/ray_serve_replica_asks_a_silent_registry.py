"""Ray Serve: the second of two deployments of an application asks a model registry in its
constructor, which never answers; the driver waits in serve.run until the application is up.

The controller counts the replica as starting; the first deployment is healthy.
"""

import os
import socket
from urllib.parse import urlsplit

import ray
from ray import serve


@serve.deployment
class Tokenizer:
    def encode(self, text: str) -> list[int]:
        return [ord(letter) for letter in text]


@serve.deployment
class Model:
    def __init__(self, tokenizer: serve.handle.DeploymentHandle, registry: str) -> None:
        self.tokenizer = tokenizer
        self.weights = self.pull(urlsplit(registry))

    def pull(self, registry: object) -> bytes:
        with socket.create_connection((registry.hostname, registry.port)) as channel:
            channel.sendall(b"GET /weights HTTP/1.0\r\n\r\n")
            return channel.recv(1 << 16)

    async def __call__(self, request: object) -> int:
        return sum(await self.tokenizer.encode.remote("once upon a time"))


def main() -> None:
    ray.init(num_cpus=4, include_dashboard=False)
    port = int(os.environ["PORT"])
    serve.start(http_options={"port": port})
    serve.run(Model.bind(Tokenizer.bind(), os.environ["SERVICE"]), name="writer")
    print("up", flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# world = "silent_service"
# needs = ["ray", "fastapi", "uvicorn"]
# culprits = [[0], [-1]]
# steps = ["ray_get", "script", "ray_init", "ray_serve"]
# after = ["Ray started", "Answer of Ray there", ""]
# own_code = true
# calls = ['serve\.api\.run', 'pull', 'Model', 'recv']
# causes = ["endpoint-silent"]
# says = ['Model|pull']
# limit = 300
# ///
