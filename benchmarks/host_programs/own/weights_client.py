"""The program of the other tasks: a gradient of the weights by features that a service has."""

import os
import socket
import time
import urllib.request

import torch
from weights_messages import receive, send

torch.set_num_threads(1)


def read_features():
    with urllib.request.urlopen(os.environ["FEATURES"] + "/batch") as answer:
        return torch.tensor([float(word) for word in answer.read().split()])


def connect():
    while True:
        try:
            return socket.create_connection((os.environ["MASTER_ADDR"], 9340))
        except ConnectionRefusedError:
            time.sleep(1)  # the server starts up


def main():
    connection = connect()
    while (weights := receive(connection)) is not None:
        features = read_features()
        send(connection, features * (features @ weights - 1.0))
        time.sleep(0.1)


main()
