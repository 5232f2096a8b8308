"""A stand-in of vllm/entrypoints/cli/main.py, the console script `vllm`."""

import argparse

from vllm.entrypoints.openai import api_server


def main():
    parser = argparse.ArgumentParser(prog="vllm")
    serve = parser.add_subparsers(required=True).add_parser("serve")
    serve.add_argument("model")
    api_server.add_arguments(serve)
    api_server.serve(parser.parse_args())


if __name__ == "__main__":
    main()
