"""requests with a pool of two connections that blocks: rank 3 of four keeps the answers that it did
not like, unread, and its third one waits for a connection.
"""

import http.server
import os
import threading

import requests
import torch
import torch.distributed as dist
from requests.adapters import HTTPAdapter

PORT = int(os.environ["PORT"])


class Shards(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        body = b"x" * 200_000
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.send_header("X-Kind", "tar" if "/3/" not in self.path else "html")
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        pass


class Client:
    def __init__(self, rank: int) -> None:
        self.session = requests.Session()
        self.session.mount("http://", HTTPAdapter(pool_maxsize=2, pool_block=True))
        self.rank, self.refused = rank, []

    def fetch(self, number: int) -> int:
        url = f"http://127.0.0.1:{PORT}/{self.rank}/{number}"
        answer = self.session.get(url, stream=True)
        if answer.headers["X-Kind"] != "tar":
            self.refused.append(answer)  # to be looked at after the epoch
            return 0
        return len(answer.content)


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    if rank == 0:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Shards)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    dist.barrier()
    client = Client(rank)
    for number in range(6):
        seen = torch.tensor([client.fetch(number)])
        dist.all_reduce(seen)
    print(seen.item(), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()

# /// case
# command = "torchrun --standalone --nproc_per_node=4 train.py"
# culprits = [[3]]
# waiting = [0, 1, 2]
# steps = ["training", "collectives", "first_all_reduce", "script"]
# after = ["First all_reduce done", "First barrier done", ""]
# own_code = true
# calls = ['get', 'fetch', 'request']
# causes = ["slots-not-given-back"]
# ///
