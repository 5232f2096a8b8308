"""Ray: each of two engines is an actor that starts a server and asks it in its constructor whether
it is up; the server of the second is killed while it loads (SIGKILL, for want of memory).

Its actor asks on and never looks at the status; the driver waits in ray.get for both.
"""

import multiprocessing
import socket
import time
import urllib.request

import ray
from rollout_server import launch_server

spawn = multiprocessing.get_context("spawn")


@ray.remote(num_cpus=0)
class RolloutEngine:
    def __init__(self, shards: int) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.server = spawn.Process(target=launch_server, args=(self.port, shards), daemon=True)
        self.server.start()
        self.wait_until_healthy()

    def wait_until_healthy(self) -> None:
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health_generate").close()
                return
            except OSError:
                time.sleep(1)

    def port_of_server(self) -> int:
        return self.port


if __name__ == "__main__":
    ray.init(num_cpus=2, include_dashboard=False)
    engines = [RolloutEngine.remote(shards) for shards in (4, 8)]
    print(ray.get([engine.port_of_server.remote() for engine in engines]), flush=True)

# /// case
# command = "python train.py"
# needs = ["ray"]
# culprits = [[-1], [0]]
# steps = ["ray_get", "script"]
# after = ["Ray started", "Actor asked for", ""]
# own_code = true
# ends = true
# calls = ['ray\.get', 'wait_until_healthy', '__init__', 'sleep', 'urlopen', '^$']
# causes = [
#   "child-died", "worker-dead",
#   "killed-from-outside", "endpoint-unserved", "server-not-up",
# ]
# says = ['RolloutEngine', 'SIGKILL|signal 9|killed|ended']
# [files]
# "rollout_server.py" = '''
# """A server of generation: /health_generate answers once the weights are there."""
# import http.server
# import os
# import signal
#
#
# class Handler(http.server.BaseHTTPRequestHandler):
#     def do_GET(self) -> None:
#         self.send_response(200)
#         self.end_headers()
#
#     def log_message(self, *_: object) -> None:
#         pass
#
#
# def launch_server(port: int, shards: int) -> None:
#     weights = []
#     for shard in range(shards):
#         weights.append(bytearray(1 << 20))
#         if shard == 5:
#             os.kill(os.getpid(), signal.SIGKILL)
#     http.server.HTTPServer(("127.0.0.1", port), Handler).serve_forever()
# '''
# ///
