"""Control: a service that takes four seconds for each answer, and closes after it.

Every answer comes, and every look shows the same recv() in the same line, each time on another
connection: a catalogue that is asked for one shard after another by urllib, which keeps no
connection open.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from typing import Any

from hangbisect.zoo.case import Case, CasePlace, Stage, Truth

SHARDS = 12

CATALOGUE = """
import http.server, time
class Catalogue(http.server.BaseHTTPRequestHandler):
    def log_message(self, *words):
        pass
    def do_GET(self):
        time.sleep(4)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"there")
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Catalogue)
server.daemon_threads = True
server.handle_error = lambda *words: None
ready(server.server_address[1])
server.serve_forever()
"""


def data_module(given: Any) -> Any:
    import urllib.request

    from hangbisect.zoo.in_rank import rank_number, run_usual_step

    if rank_number(given) == 1:
        opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        for shard in range(SHARDS):
            with opener.open(f"{os.environ['CATALOGUE']}/{shard}") as answer:
                answer.read()
    return run_usual_step(given)


@contextlib.contextmanager
def slow_catalogue(place: CasePlace) -> Iterator[Stage]:
    from hangbisect.zoo.parts.processes import helper

    with helper(CATALOGUE) as server:
        yield Stage(environment={"CATALOGUE": f"http://127.0.0.1:{server.said}"})


CASE = Case(
    id="H33",
    title="control: a service that answers after 4 s and closes",
    cluster="control",
    reports=("Garden-AI/rootstock#167",),
    truth=Truth(outcome="ok", slow="data_module"),
    uses={"data_module": "data_module"},
    stage=slow_catalogue,
    options=("--timeout", "data_module=12", "--until", "data_module"),
    limit=240.0,
)
