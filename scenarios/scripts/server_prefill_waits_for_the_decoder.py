"""Prefill and decoding in two processes of two programs: prefill has a request's cache and waits
for the decoder to say where to; the decoder's thread for that died of a message it cannot read.

The decoder's main thread asks again and again whether the cache is there. The router waits for the
decoder's first token, and its client for the router. All processes live.
"""

import argparse
import sys
import threading

import zmq


def ask(router: zmq.Socket[bytes], decoder: zmq.Socket[bytes], prefill: zmq.Socket[bytes]) -> None:
    request = {"room": 4711, "prompt": "once upon a time"}
    prefill.send_json(request)
    decoder.send_json(request)
    print(decoder.recv_json(), flush=True)
    assert router is not None


def route(args: argparse.Namespace) -> None:
    context = zmq.Context.instance()
    router = context.socket(zmq.REP)
    router.bind(f"tcp://127.0.0.1:{args.port}")
    prefill, decoder = context.socket(zmq.PUSH), context.socket(zmq.DEALER)
    prefill.bind("ipc://prefill.sock")
    decoder.bind("ipc://decode.sock")
    ask(router, decoder, prefill)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, required=True)
    threading.current_thread().name = "router"
    sys.exit(route(parser.parse_args()))

# /// case
# command = "sh serve.sh $PORT"
# needs = ["zmq", "setproctitle"]
# culprits = [[-1], [0]]
# steps = ["script", "arguments", "import_torch", "zmq"]
# after = ["Args parsed", ""]
# own_code = true
# calls = ['poll', 'recv', 'ask', 'wait_for_cache', 'sleep', 'receive_places', 'run', 'send_cache']
# causes = ["dead-producer", "polling-loop", "swallowed-exception", "nobody-sends"]
# says = ['decode']
# [files]
# "serve.sh" = """
# python prefill.py &
# python decode.py &
# exec python train.py --port $1
# """
# "prefill.py" = '''
# """Reads the prompt and sends what it has computed to where the decoder wants it."""
# import setproctitle
# import zmq
#
# setproctitle.setproctitle("pd::prefill")
#
#
# def send_cache(places, request):
#     places.send_json({"room": request["room"], "layers": 8, "dtype": "fp8_e4m3"})
#     where = places.recv_json()
#     return where
#
#
# def main():
#     context = zmq.Context.instance()
#     requests, places = context.socket(zmq.PULL), context.socket(zmq.PAIR)
#     requests.connect("ipc://prefill.sock")
#     places.bind("ipc://places.sock")
#     while True:
#         request = requests.recv_json()
#         print("prefill: room", request["room"], flush=True)
#         send_cache(places, request)
#
#
# main()
# '''
# "decode.py" = '''
# """Receives the cache of a request and makes its tokens."""
# import threading
# import time
#
# import setproctitle
# import zmq
#
# setproctitle.setproctitle("pd::decode")
# SIZES = {"bf16": 2, "fp16": 2}
#
#
# class Decoder:
#     def __init__(self):
#         context = zmq.Context.instance()
#         self.requests = context.socket(zmq.DEALER)
#         self.requests.connect("ipc://decode.sock")
#         self.rooms = {}
#         threading.Thread(target=self.receive_places, name="transfer", daemon=True).start()
#
#     def receive_places(self):
#         places = zmq.Context.instance().socket(zmq.PAIR)
#         places.connect("ipc://places.sock")
#         while True:
#             told = places.recv_json()
#             size = told["layers"] * SIZES[told["dtype"]] * 4096
#             self.rooms[told["room"]] = bytearray(size)
#             places.send_json({"room": told["room"], "size": size})
#
#     def wait_for_cache(self, room):
#         while room not in self.rooms:
#             time.sleep(0.05)
#
#     def run(self):
#         while True:
#             request = self.requests.recv_json()
#             self.wait_for_cache(request["room"])
#             self.requests.send_json({"token": 1})
#
#
# Decoder().run()
# '''
# ///
