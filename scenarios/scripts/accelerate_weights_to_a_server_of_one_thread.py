"""accelerate launch beside a rollout server with a single thread: process 0 sends its new weights
while the rollouts that it asked for before are still being made.

The server's only thread asks a reward service for each rollout, which never answers; nobody accepts
the connection with the weights. Process 1 waits for process 0 in a broadcast. What stands still is
the server, in its request to the reward service.
"""

import argparse
import io
import time
from concurrent.futures import ThreadPoolExecutor

import requests
import torch
from accelerate import Accelerator
from accelerate.utils import broadcast_object_list


class Rollouts:
    def __init__(self, base: str) -> None:
        self.base, self.pool = base, ThreadPoolExecutor(1)

    def wait_until_up(self) -> None:
        while True:
            try:
                requests.get(f"{self.base}/health", timeout=2).raise_for_status()
                return
            except requests.RequestException:
                time.sleep(0.3)

    def ask(self, prompts: list[str]) -> object:
        def generate() -> list[str]:
            return requests.post(f"{self.base}/generate", json={"prompts": prompts}).json()

        return self.pool.submit(generate)

    def update_weights(self, model: torch.nn.Module) -> None:
        buffer = io.BytesIO()
        torch.save(model.state_dict(), buffer)
        requests.post(f"{self.base}/update_weights", data=buffer.getvalue()).raise_for_status()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    args = parser.parse_args()
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(16, 16)
    rollouts = Rollouts(args.server)
    pending = None
    if accelerator.is_main_process:
        rollouts.wait_until_up()
        pending = rollouts.ask(["once upon a time", "there was"])
        time.sleep(1)
    for step in range(10):
        if accelerator.is_main_process:
            rollouts.update_weights(accelerator.unwrap_model(model))
        texts = [pending.result() if accelerator.is_main_process else None]
        broadcast_object_list(texts, from_process=0)
        accelerator.print(f"step {step}: {texts}", flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "sh train.sh $PORT"
# world = "silent_service"
# culprits = [[-1], [0]]
# waiting = [1]
# steps = ["accelerator", "process_group", "broadcast", "http", "script"]
# after = ["Accelerator configured", "Process group ready", "deepspeed imported", ""]
# own_code = true
# calls = ['post', 'update_weights', 'urlopen', 'reward', 'readinto', 'recv']
# causes = ["endpoint-silent", "server-process-stuck"]
# says = ['rollout\.py|reward|urlopen']
# [files]
# "train.sh" = """
# python rollout.py $1 &
# accelerate launch --multi_gpu --main_process_port=0 --num_machines=1 \
#     --num_processes=2 --mixed_precision=no --dynamo_backend=no \
#     train.py --server http://127.0.0.1:$1
# """
# "rollout.py" = '''
# """A rollout server: it generates, scores by a service, and takes new weights."""
# import json
# import os
# import sys
# import urllib.request
# from http.server import BaseHTTPRequestHandler, HTTPServer
#
#
# def reward(text):
#     asked = urllib.request.Request(os.environ["SERVICE"] + "/score", data=text.encode())
#     with urllib.request.urlopen(asked) as answer:
#         return json.load(answer)["score"]
#
#
# class Handler(BaseHTTPRequestHandler):
#     def answer(self, value):
#         body = json.dumps(value).encode()
#         self.send_response(200)
#         self.send_header("Content-Length", str(len(body)))
#         self.end_headers()
#         self.wfile.write(body)
#
#     def do_GET(self):
#         self.answer("ok")
#
#     def do_POST(self):
#         body = self.rfile.read(int(self.headers["Content-Length"]))
#         if self.path == "/generate":
#             texts = [prompt + " ..." for prompt in json.loads(body)["prompts"]]
#             self.answer([(text, reward(text)) for text in texts])
#         else:
#             self.answer("ok")
#
#     def log_message(self, *words):
#         pass
#
#
# HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
# '''
# ///
