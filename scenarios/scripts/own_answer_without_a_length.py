"""Rank 0 of three serves its weights by HTTP/1.1 and says neither how long an answer is nor
that the connection ends with it: rank 2 reads on; rank 1 has asked nothing and waits for both in
a barrier.
"""

import http.client
import http.server
import multiprocessing
import os
import threading
import time

WORLD = 3
PORT = int(os.environ["PORT"])


class Weights(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "application/octet-stream")
        self.end_headers()
        self.wfile.write(bytes(64_000))

    def log_message(self, *words: object) -> None:
        pass


def fetch_weights() -> int:
    connection = http.client.HTTPConnection("127.0.0.1", PORT)
    connection.request("GET", "/weights")
    return len(connection.getresponse().read())


def train(rank: int, meeting) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(WORLD), LOCAL_RANK=str(rank))
    if rank == 0:
        server = http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Weights)
        threading.Thread(target=server.serve_forever, daemon=True).start()
    elif rank == 2:
        time.sleep(1)
        print(fetch_weights(), "bytes", flush=True)
    meeting.wait()
    print(rank, "trains", flush=True)


if __name__ == "__main__":
    meeting = multiprocessing.Barrier(WORLD)
    ranks = [multiprocessing.Process(target=train, args=(r, meeting)) for r in range(WORLD)]
    for one in ranks:
        one.start()
    for one in ranks:
        one.join()

# /// case
# command = "python train.py"
# culprits = [[2], [0, 2]]
# waiting = [1]
# steps = ["script", "training"]
# after = [""]
# own_code = true
# calls = ['fetch_weights', 'read', 'getresponse', 'HTTPResponse']
# ///
