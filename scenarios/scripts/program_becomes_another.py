"""Clears its environment, forks, leaves a daemon, and becomes another program."""

import os
import sys
import time

import safetensors

if len(sys.argv) > 1:
    print(sys.argv[1:], sorted(os.environ), safetensors.__name__)
    sys.exit(4)
for name in list(os.environ):
    del os.environ[name]
child = os.fork()
if child == 0:
    print("child", flush=True)
    os._exit(5)
print("child ended with", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
child = os.fork()
if child == 0:
    os.setsid()
    if os.fork() == 0:
        time.sleep(0.5)
    os._exit(0)
os.waitpid(child, 0)
os.execv(sys.executable, [sys.executable, __file__, "again"])

# /// case
# command = "python train.py"
# outcome = "ok"
# status = 4
# ///
