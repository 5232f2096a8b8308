"""Two small HTTP servers of one thread each: the rollout server asks the reward server for a score
while it answers, and the reward server asks the rollout server for the log-probabilities of the
text.

The reward server's request is in the queue of the rollout server's socket, which accepts nothing
before its own answer is done. The trainer waits for its rollout.
"""

import http.server
import multiprocessing
import time
import urllib.error
import urllib.request

import setproctitle

spawn = multiprocessing.get_context("spawn")


def ask(port: int, path: str) -> bytes:
    with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}") as answer:
        return answer.read()


def answer_by(make: dict) -> type:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = make[self.path]()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    return Handler


def run_rollout_server(port: int, reward: int) -> None:
    setproctitle.setproctitle("rl::rollout_server")

    def generate() -> bytes:
        return b"text " + ask(reward, "/score")

    routes = {"/generate": generate, "/logprobs": lambda: b"-0.5", "/health": lambda: b"ok"}
    http.server.HTTPServer(("127.0.0.1", port), answer_by(routes)).serve_forever()


def run_reward_server(port: int, rollout: int) -> None:
    setproctitle.setproctitle("rl::reward_server")

    def score() -> bytes:
        return b"%d" % len(ask(rollout, "/logprobs"))

    routes = {"/score": score, "/health": lambda: b"ok"}
    http.server.HTTPServer(("127.0.0.1", port), answer_by(routes)).serve_forever()


def wait_until_healthy(port: int) -> None:
    while True:
        try:
            ask(port, "/health")
            return
        except urllib.error.URLError:
            time.sleep(0.2)


def main(rollout: int, reward: int) -> None:
    spawn.Process(target=run_rollout_server, args=(rollout, reward), daemon=True).start()
    spawn.Process(target=run_reward_server, args=(reward, rollout), daemon=True).start()
    for port in (rollout, reward):
        wait_until_healthy(port)
    print("both servers are healthy", flush=True)
    for step in range(5):
        print(step, ask(rollout, "/generate"), flush=True)


if __name__ == "__main__":
    import sys

    main(int(sys.argv[1]), int(sys.argv[1]) + 1)

# /// case
# command = "python train.py $PORT"
# needs = ["setproctitle"]
# culprits = [[-1], [0]]
# steps = ["script"]
# after = [""]
# own_code = true
# calls = ['ask', 'urlopen', 'generate', 'score', 'read', 'do_GET']
# causes = ["deadlock", "server-asks-itself"]
# says = ['reward_server', 'rollout_server']
# ///
