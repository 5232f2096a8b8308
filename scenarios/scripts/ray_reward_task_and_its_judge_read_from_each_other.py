"""Ray: a reward task starts a judge as a program, writes the answer into its standard input and
reads what it prints; it has not closed that input, and the judge reads to its end.

The task is below two helpers of a module of its own; the driver waits for the scores, and
two actors for their next call.
"""

import judge
import ray


@ray.remote
class Rollout:
    def __init__(self, number: int) -> None:
        self.number = number

    def generate(self, prompt: str) -> str:
        return f"{prompt} {self.number}"


@ray.remote
def compute_score(answer: str) -> float:
    return judge.score(answer)


class RewardManager:
    def __init__(self, count: int) -> None:
        self.rollouts = [Rollout.remote(number) for number in range(count)]

    def __call__(self, prompts: list[str]) -> list[float]:
        pairs = zip(self.rollouts, prompts, strict=True)
        answers = ray.get([one.generate.remote(prompt) for one, prompt in pairs])
        return ray.get([compute_score.remote(answer) for answer in answers])


if __name__ == "__main__":
    ray.init(num_cpus=4, include_dashboard=False)
    print(RewardManager(2)(["one", "two"]), flush=True)

# /// case
# command = "python train.py"
# needs = ["ray"]
# culprits = [[-1]]
# waiting = [0]
# steps = ["ray_get", "script"]
# after = ["Answer of Ray there", "Ray started", ""]
# own_code = true
# calls = ['read', 'score', 'compute_score', 'judge', 'ask', 'Popen']
# causes = ["deadlock", "ray-task", "child-process-stuck", "child-program", "full-queues-both-ways"]
# says = ['compute_score|judge|pipe']
# [files]
# "judge.py" = '''
# """Scores answers with a program of its own."""
# import pathlib
# import subprocess
# import sys
#
#
# class Judge:
#     def __init__(self) -> None:
#         program = pathlib.Path(__file__).with_name("judge_program.py")
#         self.process = subprocess.Popen(
#             [sys.executable, program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
#         )
#
#     def ask(self, answer: str) -> str:
#         self.process.stdin.write(answer + "\n")
#         self.process.stdin.flush()
#         return self.process.stdout.readline()
#
#
# def score(answer: str) -> float:
#     return float(Judge().ask(answer))
# '''
# "judge_program.py" = '''
# """Prints the length of what it is told."""
# import sys
#
# print(len(sys.stdin.read()), flush=True)
# '''
# ///
