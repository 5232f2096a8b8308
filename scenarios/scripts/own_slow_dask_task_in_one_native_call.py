"""Healthy and slow: Dask: one task of two derives a key for long, in a single call of C that lets
the GIL go; the other one is done, and the client waits for both.
"""

import hashlib
import sys

from distributed import Client, LocalCluster


def derive_key(password: str, rounds: int) -> str:
    return hashlib.pbkdf2_hmac("sha256", password.encode(), b"salt", rounds).hex()


def main(rounds: int) -> None:
    cluster = LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with cluster, Client(cluster) as client:
        keys = [client.submit(derive_key, "once", rounds), client.submit(derive_key, "upon", 10)]
        print(client.gather(keys), flush=True)


if __name__ == "__main__":
    main(int(float(sys.argv[1]) * 1_000_000))

# /// case
# command = "python train.py $AMOUNT"
# needs = ["distributed"]
# outcome = "ok"
# amount = 45.0
# limit = 280.0
# ///
