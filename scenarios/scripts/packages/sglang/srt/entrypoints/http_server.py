"""A stand-in of sglang/srt/entrypoints/http_server.py: HTTP without uvicorn."""

import logging
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from sglang.srt.entrypoints.engine import _launch_subprocesses

logger = logging.getLogger(__name__)


class Health(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()


def launch_server(server_args):
    logging.basicConfig(level=logging.INFO, stream=sys.stderr)
    scheduler_procs, detoken_proc = _launch_subprocesses(server_args)
    server = ThreadingHTTPServer(("127.0.0.1", server_args.port), Health)
    logger.info("The server is fired up and ready to roll!")
    if server_args.stop_after is not None:
        threading.Timer(server_args.stop_after, server.shutdown).start()
    server.serve_forever()
    for proc in (*scheduler_procs, detoken_proc):
        proc.kill()
