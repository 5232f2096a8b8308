"""Federated rounds by XML-RPC: clients report to the first machine, which asks them for details."""

import os
import threading
import time
import xmlrpc.client
import xmlrpc.server

RANK, WORLD, PORT = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]), 9360


def reach(host):
    return xmlrpc.client.ServerProxy(f"http://{host}:{PORT}", allow_none=True)


def listen(functions):
    server = xmlrpc.server.SimpleXMLRPCServer(("", PORT), logRequests=False, allow_none=True)
    for function in functions:
        server.register_function(function)
    return server


class Coordinator:
    def __init__(self):
        self.reports = 0

    def settings(self):
        return {"rate": 0.1, "rounds": 40}

    def report(self, host, number, loss):
        details = None
        if number == 3:
            details = reach(host).describe(number)
        self.reports += 1
        return {"reports": self.reports, "kept": details is not None}

    def serve(self):
        server = listen([self.settings, self.report])
        while self.reports < (WORLD - 1) * 40:
            server.handle_request()


class Client:
    def __init__(self, host):
        self.host, self.coordinator = host, reach(os.environ["MASTER_ADDR"])
        self.losses = [1.0]

    def describe(self, number):
        # The rate may have changed since: ask for it.
        rate = reach(os.environ["MASTER_ADDR"]).settings()["rate"]
        return {"round": number, "rate": rate, "losses": len(self.losses)}

    def run(self):
        server = listen([self.describe])
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for number in range(40):
            time.sleep(0.05)
            self.losses.append(self.losses[-1] * 0.9)
            self.coordinator.report(self.host, number, self.losses[-1])


def wait_for_coordinator():
    while True:
        try:
            return reach(os.environ["MASTER_ADDR"]).settings()
        except ConnectionRefusedError:
            time.sleep(0.2)


if RANK == 0:
    Coordinator().serve()
else:
    wait_for_coordinator()
    Client(f"n{RANK + 1}").run()
