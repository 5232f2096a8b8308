"""Healthy: a launcher asks /health each two seconds; its server reads its weights slowly (some
bytes at a time, from a service) before it listens. After that the launcher ends the server, and
itself.
"""

import argparse
import os
import subprocess
import sys
import time
import urllib.error
import urllib.request


def wait_for_health(url: str) -> None:
    while True:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except urllib.error.URLError:
            time.sleep(2)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    args = parser.parse_args()
    server = subprocess.Popen([sys.executable, "server.py", str(args.port), os.environ["SERVICE"]])
    wait_for_health(f"http://127.0.0.1:{args.port}/health")
    print("server is up", flush=True)
    server.terminate()
    server.wait()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# world = "trickling_service"
# outcome = "ok"
# amount = 45.0
# limit = 240.0
# [files]
# "server.py" = '''
# """Loads, then listens."""
# import sys
# import urllib.request
# from http.server import BaseHTTPRequestHandler, HTTPServer
#
#
# class Handler(BaseHTTPRequestHandler):
#     def do_GET(self):
#         self.send_response(200)
#         self.end_headers()
#
#
# with urllib.request.urlopen(sys.argv[2]) as answer:
#     print(len(answer.read()), flush=True)
# HTTPServer(("127.0.0.1", int(sys.argv[1])), Handler).serve_forever()
# '''
# ///
