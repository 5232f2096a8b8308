"""A stand-in of sglang/launch_server.py."""

import argparse

from sglang.srt.entrypoints.http_server import launch_server


def run_server():
    parser = argparse.ArgumentParser()
    parser.add_argument("--model-path", required=True)
    parser.add_argument("--tp", dest="tp_size", type=int, default=1)
    parser.add_argument("--port", type=int, default=30000)
    parser.add_argument("--stop-after", type=float, help="of the stand-in: seconds")
    launch_server(parser.parse_args())


if __name__ == "__main__":
    run_server()
