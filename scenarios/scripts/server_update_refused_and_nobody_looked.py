"""A trainer and its rollout server, two programs: the trainer asks the server to take new weights,
does not look at the answer, and broadcasts them. The server has refused (a shape differs, 500).

The server is rank 1 of the group for the weights and serves requests again; the trainer, rank 0 of
it, waits in broadcast for a server that does not know of it. No process has died.
"""

import argparse
import json
import threading
import time
import urllib.error
import urllib.request

import torch
import torch.distributed as dist


def post(base: str, path: str, value: object) -> int:
    asked = urllib.request.Request(base + path, data=json.dumps(value).encode())
    try:
        with urllib.request.urlopen(asked, timeout=60) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code


def wait_for_server(base: str) -> None:
    while True:
        try:
            urllib.request.urlopen(f"{base}/health", timeout=2).close()
            return
        except OSError:
            time.sleep(0.3)


def join_group(base: str, port: int) -> None:
    asked = threading.Thread(target=post, args=(base, "/init_group", {"port": port}))
    asked.start()
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=0, world_size=2)
    asked.join()


def update_weights(base: str, model: torch.nn.Module) -> None:
    shapes = {name: list(weight.shape) for name, weight in model.named_parameters()}
    request = threading.Thread(target=post, args=(base, "/update_weights", shapes))
    request.start()
    for weight in model.parameters():
        dist.broadcast(weight.data, src=0)
    request.join()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--server", required=True)
    parser.add_argument("--group-port", type=int, required=True)
    args = parser.parse_args()
    model = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 5))
    wait_for_server(args.server)
    join_group(args.server, args.group_port)
    for step in range(3):
        model(torch.randn(4, 16)).sum().backward()
        update_weights(args.server, model)
        print(f"step {step}", flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "sh train.sh $PORT"
# culprits = [[1], [-1]]
# waiting = [0]
# steps = ["process_group", "broadcast", "first_broadcast", "training", "script"]
# after = ["Process group ready", "torch imported", ""]
# own_code = true
# calls = ['select', 'serve_forever', 'poll', 'broadcast', '^$']
# causes = ["rank-conditional-collective"]
# says = ['rollout\.py|server|request']
# [files]
# "train.sh" = """
# python rollout.py $1 &
# python train.py --server http://127.0.0.1:$1 --group-port $(($1 + 1))
# """
# "rollout.py" = '''
# """Rollouts by HTTP; new weights come by a group of torch."""
# import json
# import sys
# from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
#
# import torch
# import torch.distributed as dist
#
# MODEL = torch.nn.Sequential(torch.nn.Linear(16, 16), torch.nn.Linear(16, 4))
#
#
# def update_weights(shapes):
#     ours = dict(MODEL.named_parameters())
#     for name, shape in shapes.items():
#         if list(ours[name].shape) != shape:
#             raise ValueError(f"{name}: {shape} for {list(ours[name].shape)}")
#     for weight in MODEL.parameters():
#         dist.broadcast(weight.data, src=0)
#
#
# def init_group(port):
#     dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=1, world_size=2)
#
#
# class Handler(BaseHTTPRequestHandler):
#     def do_GET(self):
#         self.send_response(200)
#         self.end_headers()
#
#     def do_POST(self):
#         value = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
#         try:
#             if self.path == "/init_group":
#                 init_group(value["port"])
#             else:
#                 update_weights(value)
#             self.send_response(200)
#         except Exception:
#             self.send_response(500)
#         self.end_headers()
#
#     def log_message(self, *words):
#         pass
#
#
# ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
# '''
# ///
