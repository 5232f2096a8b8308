"""A shell starts the three parts of a job in a loop, each with its number as an argument; they meet
in files, and part 1 asks for a lock on its results that it has taken already, by another
descriptor.
"""

import fcntl
import pathlib
import sys
import time


def meet(number: int, of: int, step: int) -> None:
    pathlib.Path(f"part-{number}.{step}").touch()
    while len([*pathlib.Path().glob(f"part-*.{step}")]) < of:
        time.sleep(0.2)


def append(name: str, text: str) -> None:
    with open(name, "a") as results:
        fcntl.flock(results, fcntl.LOCK_EX)
        results.write(text)


def main() -> None:
    number, of = int(sys.argv[1]), int(sys.argv[2])
    for step in range(5):
        meet(number, of, step)
        if number == 1 and step == 2:
            with open(f"results-{number}.txt", "a") as results:
                fcntl.flock(results, fcntl.LOCK_EX)
                append(f"results-{number}.txt", "checked\n")
        append(f"results-{number}.txt", f"{step}\n")


if __name__ == "__main__":
    main()

# /// case
# command = "bash start.sh"
# culprits = [[1]]
# waiting = [0, 2]
# steps = ["script"]
# after = [""]
# own_code = true
# calls = ["flock"]
# causes = ["file-lock-held", "self-deadlock", "deadlock"]
# [files]
# "start.sh" = '''
# for part in 0 1 2; do
#     python -u train.py $part 3 &
# done
# wait
# '''
# ///
