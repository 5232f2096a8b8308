"""Ray Data: two trainers read a shard each of one streaming_split; the first stops early after its
first epoch, and the second waits for its second epoch to begin, which waits for both shards.

The first trainer has returned and is idle. The driver waits for both, in their order of names.
"""

import ray
import ray.data


@ray.remote
class Trainer:
    def __init__(self, name: str, patience: int) -> None:
        self.name, self.patience = name, patience

    def train_epoch(self, shard: ray.data.DataIterator) -> int:
        rows = 0
        for batch in shard.iter_batches(batch_size=8):
            rows += len(batch["id"])
        return rows

    def fit(self, shard: ray.data.DataIterator, epochs: int) -> int:
        rows = 0
        for epoch in range(epochs):
            if epoch >= self.patience:  # its loss does not fall any more
                break
            rows += self.train_epoch(shard)
        return rows


def main() -> None:
    ray.init(num_cpus=5, include_dashboard=False)
    ray.data.DataContext.get_current().enable_progress_bars = False
    shards = ray.data.range(64, override_num_blocks=4).streaming_split(2, equal=True)
    trainers = [Trainer.remote("first", 1), Trainer.remote("second", 3)]
    pairs = zip(trainers, shards, strict=True)
    fits = [trainer.fit.remote(shard, 3) for trainer, shard in pairs]
    print(ray.get(list(reversed(fits))), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[-1], [0]]
# steps = ["ray_get", "script"]
# after = ["Ray started", ""]
# own_code = true
# calls = ['ray\.get', 'fit', 'train_epoch', 'iter_batches', 'start_epoch', 'get']
# causes = ["ray-task", "unknown", "thread-stuck"]
# says = ['Trainer|SplitCoordinator', 'fit|start_epoch|train_epoch']
# needs = ["ray", "pandas"]
# limit = 240
# ///
