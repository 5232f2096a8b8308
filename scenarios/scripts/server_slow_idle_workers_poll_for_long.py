"""Healthy and idle: three workers ask their controller over HTTP for work, and it keeps each
question open for ten seconds before it answers that there is none (long polling). After a while
it tells them to end.
"""

import argparse
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

END = threading.Event()


class Controller(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        END.wait(10)
        body = b"end" if END.is_set() else b"none"
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *words: object) -> None:
        pass


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--seconds", type=float, required=True)
    args = parser.parse_args()
    server = ThreadingHTTPServer(("127.0.0.1", args.port), Controller)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    words = [sys.executable, "worker.py", str(args.port)]
    workers = [subprocess.Popen(words) for _ in range(3)]
    time.sleep(args.seconds)
    END.set()
    for one in workers:
        one.wait()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT --seconds $AMOUNT"
# outcome = "ok"
# amount = 55.0
# limit = 240.0
# [files]
# "worker.py" = '''
# """Asks for work."""
# import sys
# import urllib.request
#
# while True:
#     with urllib.request.urlopen(f"http://127.0.0.1:{sys.argv[1]}/next") as answer:
#         if answer.read() == b"end":
#             break
# '''
# ///
