"""Two single-threaded HTTP services of one launcher: the gateway asks the retriever for
passages, and the retriever asks the gateway to embed the query. Neither takes a request while it
handles one.

A client, the third command of the launcher, waits for the gateway's answer.
"""

import argparse
import json
import time
import urllib.error
import urllib.request
from http.server import BaseHTTPRequestHandler, HTTPServer


def ask(port: int, path: str) -> str:
    while True:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
                return answer.read().decode()
        except urllib.error.URLError:
            time.sleep(0.3)


def make_handler(role: str, other: int) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            if self.path == "/answer":
                text = ask(other, "/passages")
            elif self.path == "/passages":
                text = ask(other, "/embed")
            else:
                text = json.dumps([0.1, 0.2])
            self.send_response(200)
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *words: object) -> None:
            pass

    return Handler


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("role", choices=("gateway", "retriever", "client"))
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--other", type=int, required=True)
    args = parser.parse_args()
    if args.role == "client":
        print(ask(args.other, "/answer"), flush=True)
    else:
        handler = make_handler(args.role, args.other)
        HTTPServer(("127.0.0.1", args.port), handler).serve_forever()


if __name__ == "__main__":
    main()

# /// case
# command = "bash serve.sh $PORT"
# culprits = [[0], [1], [2], [-1], [0, 1], [1, 2]]
# steps = ["script", "arguments", "http"]
# after = ["Args parsed", "Served", ""]
# own_code = true
# calls = ['ask', 'urlopen', 'do_GET', 'serve_forever', '^$']
# causes = ["deadlock", "server-process-stuck", "server-asks-itself", "connections-not-taken"]
# says = ['gateway|retriever|127\.0\.0\.1:\d+', 'wait']
# [files]
# "serve.sh" = '''
# python train.py gateway --port $1 --other $(($1 + 1)) &
# python train.py retriever --port $(($1 + 1)) --other $1 &
# python train.py client --port 0 --other $1
# wait
# '''
# ///
