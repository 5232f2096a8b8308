"""Ray Tune: a trial has two processors, its own and a spare one. Its environment, an actor that is
idle, has the spare one, and the trial waits in ray.get for a task that wants it.

The task belongs to the trial's placement group; the node has more processors, which are no help.
"""

import os

import ray
from ray import tune


@ray.remote(num_cpus=1)
def featurize(rows: int) -> list[int]:
    return [row % 7 for row in range(rows)]


@ray.remote(num_cpus=1)
class Environment:
    def reset(self) -> int:
        return 100


def objective(config: dict[str, float]) -> dict[str, float]:
    environment = Environment.remote()
    rows = ray.get(environment.reset.remote())
    features = ray.get(featurize.remote(rows))
    return {"loss": sum(features) * config["rate"]}


def main() -> None:
    ray.init(num_cpus=5, include_dashboard=False)
    tuner = tune.Tuner(
        tune.with_resources(objective, tune.PlacementGroupFactory([{"CPU": 1}, {"CPU": 1}])),
        param_space={"rate": tune.grid_search([0.1, 0.2])},
        run_config=tune.RunConfig(storage_path=os.path.abspath("results")),
    )
    print(tuner.fit().get_best_result("loss", "min").metrics, flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# needs = ["ray", "pandas", "tensorboardX"]
# culprits = [[0], [-1]]
# steps = ["ray_get", "script", "ray_fit"]
# after = ["Ray started", "Actor asked for", "Answer of Ray there", "TensorBoard writer ready", ""]
# own_code = true
# calls = ['ray\.get', 'ray\.wait', 'objective', 'fit']
# causes = ["ray-placement"]
# says = ['featurize', 'CPU', 'Environment']
# limit = 300
# ///
