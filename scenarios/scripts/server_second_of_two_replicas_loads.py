"""A shell script starts two replicas of one server, each with a port of its own, and waits until
both answer; the second replica asks a registry of models that never answers for its weights.

The first replica is ready and idle. The script asks the second one every second, which refuses.
"""

import argparse
import http.server
import os
import urllib.request


class Handler(http.server.BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()


def load_weights(replica: int) -> bytes:
    if replica == 0:
        return bytes(1 << 20)
    with urllib.request.urlopen(f"{os.environ['SERVICE']}/weights") as answer:
        return answer.read()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    parser.add_argument("--replica", type=int, default=0)
    args = parser.parse_args()
    weights = load_weights(args.replica)
    print(f"replica {args.replica}: {len(weights)} bytes of weights", flush=True)
    http.server.ThreadingHTTPServer(("127.0.0.1", args.port), Handler).serve_forever()


if __name__ == "__main__":
    main()

# /// case
# command = "sh serve.sh $PORT"
# world = "silent_service"
# culprits = [[-1], [0], [1]]
# steps = ["script", "arguments"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['urlopen', 'load_weights', 'read']
# causes = ["endpoint-silent"]
# says = ['127\.0\.0\.1:\d+']
# [files]
# "serve.sh" = '''
# python train.py --port $1 &
# python train.py --port $(($1 + 1)) --replica 1 &
# for port in $1 $(($1 + 1)); do
#     until curl -sf http://127.0.0.1:$port/health; do sleep 1; done
# done
# echo both replicas are ready
# wait
# '''
# ///
