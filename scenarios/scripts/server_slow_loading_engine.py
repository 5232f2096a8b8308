"""Healthy: an engine beside the training loads its weights file by file, from a disk that takes
its time for each; rank 0 asks whether it is healthy and gets a refusal until then.

Rank 1 waits at a barrier. No line is printed meanwhile.
"""

import argparse
import subprocess
import sys
import time
import urllib.error
import urllib.request

import torch.distributed as dist


def wait_for_health(base: str) -> None:
    while True:
        try:
            urllib.request.urlopen(base + "/health").close()
            return
        except urllib.error.URLError:
            time.sleep(0.5)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", required=True)
    parser.add_argument("--seconds", required=True)
    args = parser.parse_args()
    dist.init_process_group("gloo")
    if dist.get_rank() == 0:
        engine = subprocess.Popen([sys.executable, "engine.py", args.port, args.seconds])
        wait_for_health(f"http://127.0.0.1:{args.port}")
        engine.terminate()
        engine.wait()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=2 train.py --port $PORT --seconds $AMOUNT"
# outcome = "ok"
# amount = 40.0
# [files]
# "engine.py" = '''
# """It loads 20 files of weights, then answers /health."""
# import sys
# import time
# from http.server import BaseHTTPRequestHandler, HTTPServer
# from pathlib import Path
#
# SHARDS = 20
#
#
# def load_shard(number, seconds):
#     file = Path(f"weights-{number}.bin")
#     file.write_bytes(bytes(100_000))
#     time.sleep(seconds)  # the disk
#     return file.read_bytes()
#
#
# class Handler(BaseHTTPRequestHandler):
#     def do_GET(self):
#         self.send_response(200)
#         self.end_headers()
#
#
# weights = [load_shard(number, float(sys.argv[2]) / SHARDS) for number in range(SHARDS)]
# HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
# '''
# ///
