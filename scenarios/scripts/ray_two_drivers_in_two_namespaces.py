"""Ray, two drivers on one cluster: the server's driver starts a detached engine by a name in its
own namespace; the trainer's driver asks again and again for that name in another one.

The engine is alive and idle, and its driver waits for its end; the trainer sleeps between two
attempts and never finds it.
"""

import argparse
import time

import ray


def find_engine(name: str, namespace: str) -> ray.actor.ActorHandle:
    while True:
        try:
            return ray.get_actor(name, namespace=namespace)
        except ValueError:
            time.sleep(1)


@ray.remote
class Scorer:
    def score(self, text: str) -> float:
        return len(text) / 10


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--address", required=True)
    args = parser.parse_args()
    ray.init(address=args.address, namespace="trainer")
    scorer = Scorer.remote()
    print("reward of nothing:", ray.get(scorer.score.remote("")), flush=True)
    engine = find_engine("engine", "trainer")
    for step in range(10):
        text = ray.get(engine.generate.remote(f"step {step}"))
        print(text, ray.get(scorer.score.remote(text)), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "sh train.sh $PORT"
# culprits = [[0], [-1]]
# steps = ["script", "ray_init", "ray_get", "ray_get_actor"]
# after = ["Ray started", "Answer of Ray there", "Args parsed", ""]
# own_code = true
# calls = ['find_engine', 'get_actor', 'sleep']
# causes = ["polling-loop", "retry-loop", "own-code-sleeps", "ray-task", "name-unknown"]
# says = ['find_engine|get_actor']
# needs = ["ray"]
# [files]
# "train.sh" = """
# export RAY_DISABLE_IMPORT_WARNING=1
# ray start --head --port=$1 --num-cpus=4 --include-dashboard=false --temp-dir=$HOME/r --block \
#     > head.log 2>&1 &
# until ray status --address=127.0.0.1:$1 > /dev/null 2>&1; do sleep 1; done
# python serve.py --address 127.0.0.1:$1 > serve.log 2>&1 &
# exec python train.py --address 127.0.0.1:$1
# """
# "serve.py" = '''
# """A detached engine, and a driver that waits until it is told to stop."""
# import argparse
#
# import ray
#
#
# @ray.remote
# class Engine:
#     def __init__(self):
#         self.stopped = False
#
#     async def generate(self, prompt):
#         return prompt + " ..."
#
#     async def wait_for_stop(self):
#         import asyncio
#
#         while not self.stopped:
#             await asyncio.sleep(1)
#
#
# parser = argparse.ArgumentParser()
# parser.add_argument("--address", required=True)
# ray.init(address=parser.parse_args().address, namespace="serve")
# engine = Engine.options(name="engine", lifetime="detached").remote()
# print("engine ready", flush=True)
# ray.get(engine.wait_for_stop.remote())
# '''
# ///
