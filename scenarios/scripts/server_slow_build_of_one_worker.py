"""Healthy: an engine's worker 1 builds a kernel with g++ before it is ready; worker 0, which has no
use for it, waits at a flag in shared memory, and the engine looks at the workers' flags as well.
"""

import argparse
import multiprocessing
import subprocess
import time
from typing import Any

spawn = multiprocessing.get_context("spawn")
KERNEL = """
#include <algorithm>
#include <functional>
#include <map>
#include <numeric>
#include <regex>
#include <string>
#include <vector>
template <int N> struct Tile {
    std::map<std::string, std::vector<double>> rows;
    double run(const std::string &text) {
        std::regex word("[a-z]+" + std::to_string(N));
        auto &row = rows[std::regex_replace(text, word, "x")];
        row.resize(N + 1, 0.5 * N);
        std::sort(row.begin(), row.end(), std::greater<double>());
        return std::accumulate(row.begin(), row.end(), 0.0) + Tile<N - 1>().run(text);
    }
};
template <> struct Tile<0> { double run(const std::string &) { return 0; } };
extern "C" double attention(const char *text) { return Tile<TILES>().run(text); }
"""


def build(number: int, tiles: int) -> None:
    with open(f"kernel{number}.cpp", "w") as file:
        file.write(KERNEL)
    words = ["g++", "-O3", "-shared", "-fPIC", "-ftemplate-depth=5000", f"-DTILES={tiles}"]
    subprocess.run([*words, f"kernel{number}.cpp", "-o", f"kernel{number}.so"], check=True)


def work(number: int, tiles: int, flags: Any) -> None:
    if number == 1:
        build(number, tiles)
    flags[number] = 1
    while sum(flags) < len(flags):
        time.sleep(0.01)
    print(f"worker {number} serves", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tiles", type=float, required=True)
    args = parser.parse_args()
    flags = spawn.Array("b", 2, lock=False)
    workers = [spawn.Process(target=work, args=(n, int(args.tiles), flags)) for n in range(2)]
    for one in workers:
        one.start()
    while sum(flags) < len(flags):
        time.sleep(0.01)
    for one in workers:
        one.join()
    print("ready", flush=True)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py --tiles $AMOUNT"
# outcome = "ok"
# amount = 1000.0
# ///
