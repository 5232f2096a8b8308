"""The program of task 0: it keeps the weights, and adds what all trainers send in each round."""

import os
import socket

import torch
from weights_messages import receive, send

torch.set_num_threads(1)


def main():
    trainers = int(os.environ["SLURM_NTASKS"]) - 1
    server = socket.create_server(("", 9340))
    connections = [server.accept()[0] for _ in range(trainers)]
    weights = torch.zeros(4)
    for _ in range(400):
        for connection in connections:
            send(connection, weights)
        for connection in connections:
            weights -= 0.1 * receive(connection)
    for connection in connections:
        send(connection, None)


main()
