"""A launcher starts a server and asks /health until that answers; the server took the address of
its machine from a variable and listens at 127.0.0.2, the launcher asks 127.0.0.1.

Each question is refused at once. The server is whole, has loaded and waits for requests.
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
    own = {**os.environ, "HOST_IP": "127.0.0.2"}
    words = [sys.executable, "server.py", "--port", str(args.port)]
    server = subprocess.Popen(words, env=own)
    wait_for_health(f"http://127.0.0.1:{args.port}/health")
    print("server is up", flush=True)
    server.wait()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --port $PORT"
# culprits = [[0]]
# steps = ["script", "arguments", "http"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['wait_for_health', 'sleep', 'urlopen', 'main']
# causes = ["polling-loop", "retry-loop", "endpoint-unserved", "own-code-sleeps"]
# says = ['127\.0\.0\.2|nobody|refused|serves']
# [files]
# "server.py" = '''
# """Answers /health once it has loaded."""
# import argparse
# import os
# import time
# from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
#
#
# class Handler(BaseHTTPRequestHandler):
#     def do_GET(self):
#         self.send_response(200)
#         self.send_header("Content-Length", "0")
#         self.end_headers()
#
#
# if __name__ == "__main__":
#     parser = argparse.ArgumentParser()
#     parser.add_argument("--port", type=int)
#     port = parser.parse_args().port
#     time.sleep(2)
#     ThreadingHTTPServer((os.environ["HOST_IP"], port), Handler).serve_forever()
# '''
# ///
