"""Asks at its standard input, and reads the rest of it."""

import sys

import safetensors

name = input("name? ")
print("hello", name, safetensors.__name__)
print("rest:", sys.stdin.read())

# /// case
# command = "sh start.sh"
# outcome = "ok"
# [files]
# "start.sh" = "printf 'ada\\nmore\\n' | python train.py"
# ///
