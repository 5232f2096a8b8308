"""A coordinator waits for whichever of four ranks is done first. Rank 2 has pictures, writes them
to gzip, and waits for the end of gzip while it still has the pipe open from which gzip reads.
"""

import contextlib
import multiprocessing
import os
import subprocess
from collections.abc import Iterator
from multiprocessing import connection
from typing import IO

WORLD = 4


@contextlib.contextmanager
def archive(name: str) -> Iterator[IO[bytes]]:
    """A file that is compressed by a program beside us."""
    with open(name, "wb") as file:
        program = subprocess.Popen(["gzip", "-9", "-c"], stdin=subprocess.PIPE, stdout=file)
        assert program.stdin is not None
        yield program.stdin
        program.stdin.flush()
        _, status = os.waitpid(program.pid, 0)
        if status:
            raise OSError(f"gzip ended with {status}")


def pictures_of(rank: int, shard: int) -> list[bytes]:
    return [bytes(5000)] * 10 if (rank, shard) == (2, 3) else []


class Worker:
    def __init__(self, rank: int, tasks: connection.Connection) -> None:
        self.rank, self.tasks = rank, tasks

    def keep_pictures(self, shard: int) -> int:
        pictures = pictures_of(self.rank, shard)
        if pictures:
            with archive(f"pictures-{self.rank}-{shard}.gz") as file:
                file.writelines(pictures)
        return len(pictures)

    def run(self) -> None:
        while (shard := self.tasks.recv()) is not None:
            self.tasks.send((self.rank, shard, self.keep_pictures(shard)))


def work(rank: int, tasks: connection.Connection) -> None:
    os.environ.update(RANK=str(rank), WORLD_SIZE=str(WORLD), LOCAL_RANK=str(rank))
    Worker(rank, tasks).run()


def main() -> None:
    context = multiprocessing.get_context("spawn")
    ends, ranks = [], []
    for rank in range(WORLD):
        mine, theirs = context.Pipe()
        ranks.append(context.Process(target=work, args=(rank, theirs)))
        ranks[-1].start()
        theirs.close()
        ends.append(mine)
    for shard in range(6):
        for end in ends:
            end.send(shard)
        pending = list(ends)
        while pending:
            for end in connection.wait(pending):
                print("done:", end.recv(), flush=True)
                pending.remove(end)
    for end in ends:
        end.send(None)
    for one in ranks:
        one.join()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# culprits = [[2]]
# waiting = [0, 1, 3]
# steps = ["script", "training"]
# after = [""]
# own_code = true
# calls = ['waitpid', 'archive', 'keep_pictures']
# causes = ["child-program", "deadlock", "child-process-stuck"]
# says = ['gzip']
# ///
