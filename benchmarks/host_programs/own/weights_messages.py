"""What the server of the weights and the trainers say to each other."""

import pickle
import struct


def receive_exactly(connection, wanted):
    data = b""
    while len(data) < wanted:
        part = connection.recv(wanted - len(data))
        if not part:
            raise ConnectionError("the other side is gone")
        data += part
    return data


def receive(connection):
    wanted = struct.unpack("!Q", receive_exactly(connection, 8))[0]
    return pickle.loads(receive_exactly(connection, wanted))


def send(connection, value):
    data = pickle.dumps(value)
    connection.sendall(struct.pack("!Q", len(data)) + data)
