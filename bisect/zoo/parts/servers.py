"""Servers on 127.0.0.1 that do not answer as they should, and a small Hugging Face hub with ways to
misbehave. The servers yield their port.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from .processes import helper

_SILENT = """
import socket
with socket.create_server(("127.0.0.1", 0), backlog=128) as server:
    ready(server.getsockname()[1])
    kept = []
    while True:
        kept.append(server.accept())
"""

# The queue of a listening socket that nobody accepts from takes one connection more than its
# backlog; then the kernel drops every SYN (tcp_abort_on_overflow is 0 by default: tcp(7)).
_DEAF = """
import socket
server = socket.create_server(("127.0.0.1", 0), backlog=0)
fills = socket.create_connection(server.getsockname())
ready(server.getsockname()[1])
threading.Event().wait()
"""

# A port that is taken but not listened at: a connection is refused, and nobody else can get it.
_REFUSING = """
import socket
taken = socket.socket()
taken.bind(("127.0.0.1", 0))
ready(taken.getsockname()[1])
threading.Event().wait()
"""

# Reads what it is asked, then sends `text`, a byte every `every` seconds.
_TRICKLING = """
import socket, time
text, every = sys.argv[1].encode(), float(sys.argv[2])
def serve(connection):
    connection.recv(65536)
    for byte in text:
        connection.send(bytes([byte]))
        time.sleep(every)
    connection.close()
with socket.create_server(("127.0.0.1", 0), backlog=128) as server:
    ready(server.getsockname()[1])
    while True:
        connection, _ = server.accept()
        threading.Thread(target=serve, args=(connection,), daemon=True).start()
"""


@contextlib.contextmanager
def silent_server() -> Iterator[int]:
    """A server that accepts every connection and never says a word."""
    with helper(_SILENT) as server:
        yield int(server.said)


@contextlib.contextmanager
def deaf_server() -> Iterator[int]:
    """A port at which SYNs are never answered, as behind a firewall that drops them."""
    with helper(_DEAF) as server:
        yield int(server.said)


@contextlib.contextmanager
def refusing_port() -> Iterator[int]:
    """A port that refuses connections, for as long as the block."""
    with helper(_REFUSING) as server:
        yield int(server.said)


@contextlib.contextmanager
def trickling_server(text: str, every: float) -> Iterator[int]:
    """A server that answers whatever it is asked with `text`, a byte every `every` seconds."""
    with helper(_TRICKLING, text, every) as server:
        yield int(server.said)


HUB_REPOSITORY = "people/small"  # of the one repository that it has
_DATA = Path(__file__).resolve().parents[2] / "data"
_REVISION = "0123456789abcdef0123456789abcdef01234567"
_OLDER = "89abcdef0123456789abcdef0123456789abcdef"
_TOKENIZER_CONFIG = {
    "tokenizer_class": "PreTrainedTokenizerFast",
    "eos_token": "<|endoftext|>",
    "pad_token": "<|endoftext|>",
}
# A file of weights without any: what is missing is made up (safetensors: length of the header, the
# header, data).
_HEADER = json.dumps({"__metadata__": {"format": "pt"}}).encode()
_NO_WEIGHTS = len(_HEADER).to_bytes(8, "little") + _HEADER


@dataclass(frozen=True)
class HubRule:
    """How requests for paths that `path` (a regular expression) matches are answered.

    After `delay` seconds; GET's body with `chunk` bytes every `every` seconds (0: at once); with
    `stops_at` the body ends there, and the connection stays open: the first `times` times only, if
    that is not 0.
    """

    path: str
    delay: float = 0.0
    chunk: int = 1
    every: float = 0.0
    stops_at: int | None = None
    times: int = 0


# Answers as huggingface_hub wants it: HEAD with X-Repo-Commit and ETag, GET the same with the body
# (huggingface_hub, file_download.py, get_hf_file_metadata); 404 with X-Error-Code for what is not
# there, which is asked for too (chat templates, adapters).
_HUB = """
import http.server, json, re, time
files, rules, revision = json.loads(sys.argv[1]), json.loads(sys.argv[2]), sys.argv[3]
used = {}
def rule_for(path):
    for number, rule in enumerate(rules):
        if re.search(rule["path"], path):
            used[number] = used.get(number, 0) + 1
            if not rule["times"] or used[number] <= rule["times"]:
                return rule
    return {"delay": 0, "every": 0, "chunk": 1, "stops_at": None}
class Hub(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def log_message(self, *words):
        pass
    def do_HEAD(self):
        self.answer(False)
    def do_GET(self):
        self.answer(True)
    def answer(self, with_body):
        rule = rule_for(self.command + " " + self.path)
        time.sleep(rule["delay"])
        name = self.path.partition("?")[0].rpartition("/")[2]
        if "/resolve/" not in self.path or name not in files:
            self.send_response(404)
            self.send_header("X-Error-Code", "EntryNotFound")
            self.send_header("Content-Length", "0")
            self.end_headers()
            return
        body = open(files[name]["path"], "rb").read()
        self.send_response(200)
        self.send_header("X-Repo-Commit", revision)
        self.send_header("ETag", '"' + files[name]["etag"] + '"')
        self.send_header("Content-Length", str(len(body)))
        self.send_header("Accept-Ranges", "bytes")
        self.end_headers()
        if with_body:
            self.send_body(body, rule)
    def send_body(self, body, rule):
        until = len(body) if rule["stops_at"] is None else rule["stops_at"]
        step = rule["chunk"] if rule["every"] else max(1, until)
        for at in range(0, until, step):
            self.wfile.write(body[at:min(at + step, until)])
            self.wfile.flush()
            time.sleep(rule["every"])
        if until < len(body):
            threading.Event().wait()
server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Hub)
server.daemon_threads = True
server.handle_error = lambda *words: None  # a rank that is ended hangs up in the middle
ready(server.server_address[1])
server.serve_forever()
"""


@dataclass(frozen=True)
class Hub:
    """A hub that serves. `etags`: by file, which is how its locks in the cache are called."""

    port: int
    etags: dict[str, str]

    @property
    def environment(self) -> dict[str, str]:
        """What makes huggingface_hub go there."""
        return {"HF_ENDPOINT": f"http://127.0.0.1:{self.port}", "HF_HUB_DISABLE_XET": "1"}

    def lock(self, home: Path, file: str) -> Path:
        """Return the lock that huggingface_hub takes to download `file` into HF_HOME `home`."""
        folder = "models--" + HUB_REPOSITORY.replace("/", "--")
        return home / "hub" / ".locks" / folder / f"{self.etags[file]}.lock"


def fill_hub_cache(home: Path, missing: Sequence[str] = ()) -> None:
    """Put an older version of `HUB_REPOSITORY` into the cache of HF_HOME `home`, as a download
    leaves it; `missing` are files that the hub was asked for then and did not have.

    Offline that is what is loaded; online the hub is asked for the version of today. (refs and
    snapshots of huggingface_hub's "Understand caching"; files are read alike without blobs.)
    """
    folder = home / "hub" / ("models--" + HUB_REPOSITORY.replace("/", "--"))
    (folder / "refs").mkdir(parents=True)
    (folder / "refs" / "main").write_text(_OLDER)
    _write_repository(folder / "snapshots" / _OLDER)
    for name in missing:
        marker = folder / ".no_exist" / _OLDER / name
        marker.parent.mkdir(parents=True, exist_ok=True)
        marker.touch()


def _write_repository(folder: Path) -> None:
    """Make the files of the one repository."""
    folder.mkdir(parents=True)
    shutil.copy(_DATA / "tokenizer.json", folder / "tokenizer.json")
    shutil.copy(_DATA / "model_config.json", folder / "config.json")
    (folder / "tokenizer_config.json").write_text(json.dumps(_TOKENIZER_CONFIG))
    (folder / "model.safetensors").write_bytes(_NO_WEIGHTS)


@contextlib.contextmanager
def serve_hub(folder: Path, rules: Sequence[HubRule] = ()) -> Iterator[Hub]:
    """Serve a tokenizer and a model as `HUB_REPOSITORY`; `folder` holds what is served."""
    served = folder / "served"
    _write_repository(served)
    files = {
        file.name: {"path": str(file), "etag": hashlib.sha1(file.read_bytes()).hexdigest()}
        for file in served.iterdir()
    }
    plain = json.dumps([asdict(rule) for rule in rules])
    with helper(_HUB, json.dumps(files), plain, _REVISION) as server:
        yield Hub(int(server.said), {name: of["etag"] for name, of in files.items()})
