"""Healthy and slow: a shell script starts a store of samples and copies shards for it with cp, one
after another with a pause after each; the store counts them at its end, and does nothing
meanwhile.
"""

import os
import signal
import sys


def main(folder: str) -> None:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    while True:
        signal.pause()


if __name__ == "__main__":
    main(os.getcwd())

# /// case
# command = "sh copy.sh $AMOUNT"
# outcome = "ok"
# amount = 50.0
# limit = 300
# [files]
# "copy.sh" = '''
# python train.py &
# store=$!
# head -c 8000000 /dev/zero > shard
# for n in 1 2 3 4 5 6 7 8 9 10 11 12; do
#     cp shard shard-$n
#     sleep $(($1 / 12))
# done
# kill $store
# wait
# '''
# ///
