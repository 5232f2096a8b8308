"""Ray: three scorers are handed a list that has a reference in it, and ask for that themselves; the
task that makes it counts the lines of a program's output, and the program asks at its terminal's
place, a pipe that stays open.

The driver goes over the scores as they come; none comes.
"""

import subprocess
import sys

import ray

PROGRAM = "print('licence? ', flush=True); input(); print('ok')"


@ray.remote(num_cpus=0.5)
def list_words() -> list[str]:
    command = [sys.executable, "-c", PROGRAM]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one:
        assert one.stdout is not None
        return [line.strip() for line in one.stdout]


@ray.remote(num_cpus=0.5)
class Scorer:
    def score(self, parts: list[ray.ObjectRef], weight: float) -> float:
        words = self.fetch(parts)
        return weight * sum(map(len, words))

    def fetch(self, parts: list[ray.ObjectRef]) -> list[str]:
        return [word for part in parts for word in ray.get(part)]


def main() -> None:
    ray.init(num_cpus=3, include_dashboard=False)
    words = list_words.remote()
    scorers = [Scorer.remote() for _ in range(3)]
    left = [scorer.score.remote([words], weight) for weight, scorer in enumerate(scorers)]
    while left:
        done, left = ray.wait(left, num_returns=1)
        print("score:", ray.get(done[0]), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# needs = ["ray"]
# culprits = [[0], [-1]]
# steps = ["ray_get", "script", "ray_wait"]
# after = ["Ray started", "Actor asked for", ""]
# own_code = true
# calls = ['ray\.wait', 'list_words']
# says = ['list_words']
# ///
