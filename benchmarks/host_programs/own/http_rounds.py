"""A coordinator serves rounds over HTTP; workers ask for a round, work, and post what they have."""

import http.server
import json
import os
import subprocess
import threading
import time
import urllib.error
import urllib.request

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
URL = f"http://{os.environ['MASTER_ADDR']}:9420"
ROUNDS = 20


class Rounds:
    def __init__(self):
        self.changed = threading.Condition()
        self.number, self.results = 0, {}

    def post(self, worker, result):
        with self.changed:
            self.results[worker] = result
            self.changed.notify_all()

    def run(self):
        for _ in range(ROUNDS):
            with self.changed:
                self.changed.wait_for(lambda: len(self.results) == WORLD - 1)
                self.number, self.results = self.number + 1, {}


class Handler(http.server.BaseHTTPRequestHandler):
    rounds = Rounds()

    def do_GET(self):
        self.answer({"round": self.rounds.number})

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        self.rounds.post(body["worker"], body["result"])
        self.answer({})

    def answer(self, content):
        body = json.dumps(content).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def coordinate():
    server = http.server.ThreadingHTTPServer(("", 9420), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    Handler.rounds.run()
    time.sleep(1.0)


def ask(body=None):
    data = None if body is None else json.dumps(body).encode()
    while True:
        try:
            with urllib.request.urlopen(URL, data=data) as answer:
                return json.load(answer)
        except (urllib.error.URLError, ConnectionError):
            time.sleep(0.2)


def unpack(number):
    subprocess.run(["tar", "--extract", "--file", f"/tmp/rounds/{number}.tar"], check=True)


def work():
    done = -1
    while done < ROUNDS - 1:
        number = ask()["round"]
        if number == done:
            time.sleep(0.5)
            continue
        unpack(number)
        ask({"worker": RANK, "result": number * 0.5})
        done = number


coordinate() if RANK == 0 else work()
