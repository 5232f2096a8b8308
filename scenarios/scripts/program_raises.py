"""Warns, and ends with two errors, one the cause of the other."""

import warnings

import safetensors


class Broken(Exception):
    pass


def load(path: str) -> None:
    warnings.warn("odd", stacklevel=2)
    try:
        safetensors.safe_open(path, "pt")
    except FileNotFoundError as error:
        raise Broken("no file") from error


load("/no/such/file")

# /// case
# command = "python train.py"
# outcome = "ok"
# status = 1
# ///
