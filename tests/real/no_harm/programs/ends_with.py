"""Ends with status argv[2] after argv[1] seconds; a rank if argv[3] is `rank`."""

import sys
import time

if sys.argv[3:] == ["rank"]:
    import torch  # noqa: F401

time.sleep(float(sys.argv[1]))
sys.stdout.write("ends\n")  # in one write: there may be others on the same output
sys.stdout.flush()
raise SystemExit(int(sys.argv[2]))
