"""Ray: the driver asks ray.wait for all eight conversions, with a time limit, again and again; the
task of the sixth has started a converter that reads its own standard input, which stays open.

Seven conversions are done. The task waits for the end of its converter.
"""

import subprocess
import sys

import ray

CONVERTER = "import sys; print(len(sys.stdin.read()) if {n} == 5 else {n})"


@ray.remote
def convert(number: int) -> str:
    words = [sys.executable, "-c", CONVERTER.format(n=number)]
    with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as one:
        one.wait()
        assert one.stdout is not None
        return one.stdout.read()


def collect(left: list[ray.ObjectRef]) -> list[str]:
    done: list[ray.ObjectRef] = []
    while left:
        ready, left = ray.wait(left, num_returns=len(left), timeout=10)
        done += ready
    return ray.get(done)


def main() -> None:
    ray.init(num_cpus=2, include_dashboard=False)
    print("converted:", len(collect([convert.remote(number) for number in range(8)])), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# needs = ["ray"]
# culprits = [[0], [-1]]
# steps = ["ray_get", "script", "ray_wait"]
# after = ["Ray started", ""]
# own_code = true
# calls = ['ray\.wait', 'collect', 'convert', 'wait']
# says = ['convert']
# ///
