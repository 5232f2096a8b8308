"""accelerate launch, three processes, beside a reward server of its own: the server keeps the lock
on the exported weights from the request "begin" until "end", and process 1 wants it meanwhile.

Process 0 says "end" only after the barrier, process 1 waits for the lock before that barrier. The
owner of the lock is alive, in another role, and serves.
"""

import argparse
import fcntl
import time
from pathlib import Path

import requests
import torch
from accelerate import Accelerator


class Scorer:
    def __init__(self, base: str) -> None:
        self.base = base

    def wait_until_up(self) -> None:
        while True:
            try:
                if requests.get(f"{self.base}/health", timeout=5).ok:
                    return
            except requests.ConnectionError:
                time.sleep(0.5)

    def say(self, word: str) -> None:
        requests.post(f"{self.base}/{word}", timeout=60).raise_for_status()


def export(model: torch.nn.Module, place: Path) -> None:
    with place.with_suffix(".lock").open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        torch.save(model.state_dict(), place)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--scorer", required=True)
    parser.add_argument("--export", type=Path, default=Path("policy.pt"))
    args = parser.parse_args()
    accelerator = Accelerator(cpu=True)
    model = torch.nn.Linear(8, 8)
    scorer = Scorer(args.scorer)
    if accelerator.process_index == 0:
        scorer.wait_until_up()
    for step in range(5):
        if accelerator.process_index == 0:
            scorer.say("begin")
        accelerator.wait_for_everyone()
        if accelerator.process_index == 1:
            export(model, args.export)
        accelerator.wait_for_everyone()
        if accelerator.process_index == 0:
            scorer.say("end")
        accelerator.print(f"step {step}", flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "sh train.sh $PORT"
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["accelerator", "process_group", "barrier", "script", "wait_for_everyone"]
# after = [
#   "Accelerator configured", "Process group ready", "deepspeed imported", "Barrier passed", "",
# ]
# own_code = true
# calls = ['flock', 'export']
# causes = ["file-lock-held", "deadlock"]
# says = ['policy\.lock']
# [files]
# "train.sh" = """
# python scorer.py $1 &
# accelerate launch --multi_gpu --main_process_port=0 --num_machines=1 \
#     --num_processes=3 --mixed_precision=no --dynamo_backend=no \
#     train.py --scorer http://127.0.0.1:$1
# """
# "scorer.py" = '''
# """Scores by the exported weights, which nobody may replace between begin and end."""
# import fcntl
# import sys
# from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
#
# LOCK = open("policy.lock", "a")
#
#
# class Handler(BaseHTTPRequestHandler):
#     def done(self):
#         self.send_response(200)
#         self.send_header("Content-Length", "0")
#         self.end_headers()
#
#     def do_GET(self):
#         self.done()
#
#     def do_POST(self):
#         fcntl.flock(LOCK, fcntl.LOCK_EX if self.path == "/begin" else fcntl.LOCK_UN)
#         self.done()
#
#     def log_message(self, *words):
#         pass
#
#
# ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
# '''
# ///
