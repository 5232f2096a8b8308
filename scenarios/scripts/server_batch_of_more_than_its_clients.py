"""A policy server of a reinforcement learning answers in batches of four, for it was started for
four simulators; the third one has played all its games and has ended, and three cannot fill a
batch.

Simulators 0, 1 and 3 wait for their answer over ZeroMQ, the server for a fourth request, and the
main process joins simulator 0.
"""

import multiprocessing

import setproctitle
import zmq

spawn = multiprocessing.get_context("spawn")
SIMULATORS = 4


def run_policy() -> None:
    setproctitle.setproctitle("rl::policy_server")
    asked = zmq.Context.instance().socket(zmq.ROUTER)
    asked.bind("ipc://policy.sock")
    while True:
        batch = [asked.recv_multipart() for _ in range(SIMULATORS)]
        for name, _, state in batch:
            asked.send_multipart([name, b"", b"%d" % (len(state) % 3)])


def run_simulator(number: int, games: int) -> None:
    setproctitle.setproctitle(f"rl::simulator_{number}")
    policy = zmq.Context.instance().socket(zmq.REQ)
    policy.connect("ipc://policy.sock")
    for game in range(games):
        for step in range(20):
            policy.send(b"." * (game + step))
            policy.recv()
    print(f"simulator {number} is done", flush=True)


def main() -> None:
    spawn.Process(target=run_policy, daemon=True).start()
    games = (400, 400, 60, 400)
    simulators = [
        spawn.Process(target=run_simulator, args=(number, games[number]))
        for number in range(SIMULATORS)
    ]
    for one in simulators:
        one.start()
    for one in simulators:
        one.join()


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# needs = ["zmq", "setproctitle"]
# culprits = [[0], [-1]]
# steps = ["script"]
# after = [""]
# own_code = true
# calls = ['recv', 'run_policy', 'run_simulator', 'join', 'main']
# says = ['policy_server|simulator']
# ///
