"""Ray: two tasks have one accelerator each of the node's two, and each asks for a task that wants
one too, and waits for it in ray.get: Ray gives back a waiting task's processors, not these.

Neither child ever begins; the driver waits for both tasks.
"""

import ray


@ray.remote(num_gpus=1)
def encode(text: str) -> list[int]:
    return [ord(letter) for letter in text]


@ray.remote(num_gpus=1)
def embed(shard: int) -> int:
    parts = [encode.remote(f"shard {shard} part {part}") for part in range(2)]
    return sum(len(codes) for codes in ray.get(parts))


def main() -> None:
    ray.init(num_cpus=4, num_gpus=2, include_dashboard=False)
    done = [embed.remote(shard) for shard in range(2)]
    print(sum(ray.get(done)), "codes", flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# needs = ["ray"]
# culprits = [[0], [-1]]
# steps = ["ray_get", "script"]
# after = ["Ray started", ""]
# own_code = true
# calls = ['ray\.get', 'embed']
# causes = ["ray-placement"]
# says = ['encode', 'GPU', 'embed']
# ///
