"""When this process began: read at the first line of our code, before any other import."""

import time

MONOTONIC = time.monotonic()
WALL = time.time()
