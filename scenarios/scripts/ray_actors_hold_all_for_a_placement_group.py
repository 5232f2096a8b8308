"""Ray: three tokenizers, actors that are idle, have three of the node's four processors; the driver
asks for a placement group of two bundles for its trainers, and waits until that is ready.

The driver keeps the handles of the tokenizers, which it needs no more.
"""

import ray
from ray.util.placement_group import placement_group


@ray.remote(num_cpus=1)
class Tokenizer:
    def __init__(self, language: str) -> None:
        self.language = language

    def count(self, text: str) -> int:
        return len(text.split())


def main() -> None:
    ray.init(num_cpus=4, include_dashboard=False)
    tokenizers = [Tokenizer.remote(language) for language in ("en", "fr", "de")]
    counts = ray.get([one.count.remote("once upon a time") for one in tokenizers])
    print("words:", sum(counts), flush=True)
    group = placement_group([{"CPU": 1}] * 2, strategy="PACK", name="trainers")
    ray.get(group.ready())
    print("placed", group.bundle_count, flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# needs = ["ray"]
# culprits = [[0], [-1]]
# steps = ["ray_get", "script", "placement_group"]
# after = ["Ray started", "Placement group asked for", "Answer of Ray there", ""]
# own_code = true
# calls = ['ray\.get', 'placement_group']
# causes = ["ray-placement"]
# says = ['CPU', 'Tokenizer \(\d+\)']
# ///
