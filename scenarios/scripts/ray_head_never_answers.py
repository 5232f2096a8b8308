"""ray.init connects to the address of a head that accepts and never answers."""

import sys

import ray

if __name__ == "__main__":
    ray.init(address=sys.argv[1])
    print(ray.cluster_resources())

# /// case
# command = "python train.py $ADDRESS"
# world = "silent_service"
# culprits = [[0]]
# steps = ["ray_init"]
# own_code = true
# calls = ['ray\.init']
# causes = ["ray-start"]
# needs = ["ray"]
# ///
