"""Ray: a driver gathers in asyncio what two async actors answer; each waits for a service that
takes its time, by sleeping, and answers all the same: healthy.
"""

import asyncio
import sys

import ray


@ray.remote
class Scorer:
    async def score(self, text: str, seconds: float) -> int:
        await asyncio.sleep(seconds)
        return len(text)


async def score_all(scorers: list[ray.actor.ActorHandle], seconds: float) -> int:
    return sum(await asyncio.gather(*(one.score.remote("2 + 2", seconds) for one in scorers)))


def main() -> None:
    ray.init(num_cpus=2, include_dashboard=False)
    scorers = [Scorer.remote() for _ in range(2)]
    print("scored", asyncio.run(score_all(scorers, float(sys.argv[1]))), flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py $AMOUNT"
# outcome = "ok"
# amount = 60.0
# needs = ["ray"]
# limit = 150
# ///
