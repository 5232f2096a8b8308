"""Three actors of Ray each have a judge, a program that takes its rules at SIGUSR1 and then
answers. The second actor has found the rules unchanged and sends no signal; it polls the judge's
output.
"""

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import ray


class Judge:
    def __init__(self) -> None:
        self.program = subprocess.Popen(
            [sys.executable, "judge.py"],
            cwd=os.environ["JUDGES"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            bufsize=0,
        )
        self.poller = select.poll()
        self.poller.register(self.program.stdout, select.POLLIN)
        self.program.stdout.readline()  # it has begun

    def rules_changed(self) -> None:
        self.program.send_signal(signal.SIGUSR1)

    def score(self, text: str) -> float:
        self.program.stdin.write(f"{text}\n".encode())
        self.poller.poll()
        return float(self.program.stdout.readline())


@ray.remote(num_cpus=0)
class Rollouts:
    def __init__(self, number: int) -> None:
        self.number, self.judge = number, Judge()

    def _scores(self) -> Iterator[float]:
        for text in ("one", "two", "three"):
            yield self.judge.score(text)

    def collect(self) -> float:
        if self.number != 1:
            self.judge.rules_changed()
        total = sum(self._scores())
        self.judge.program.kill()
        return total


if __name__ == "__main__":
    os.environ["JUDGES"] = os.getcwd()
    ray.init(num_cpus=2, include_dashboard=False, runtime_env={"env_vars": {"JUDGES": os.getcwd()}})
    actors = [Rollouts.remote(number) for number in range(3)]
    time.sleep(0.1)
    print(ray.get([one.collect.remote() for one in actors]))

# /// case
# command = "python train.py"
# culprits = [[-1], [0]]
# steps = ["ray_get", "script"]
# after = ["Ray started", "Actor asked for", ""]
# own_code = true
# calls = ['poll', 'score', 'collect', 'sigwait', 'ray\.get']
# causes = ["child-process-stuck", "child-program", "signal-wait"]
# says = ['judge\.py|sigwait|Judge|score']
# needs = ["ray"]
# [files]
# "judge.py" = '''
# import signal
# import sys
#
# signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
# print("begun", flush=True)
# signal.sigwait({signal.SIGUSR1})
# for line in sys.stdin:
#     print(len(line), flush=True)
# '''
# ///
