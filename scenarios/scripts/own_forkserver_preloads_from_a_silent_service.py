"""forkserver: a module that is preloaded reads its configuration from a service as it is imported,
and the service never answers; the main process waits in start() for the pid of its first worker.

The fork server is the one that stands still, before it serves anybody.
"""

import multiprocessing
import sys


def tokenize(texts: list[str], results: object) -> None:
    import settings

    results.put([text.split(settings.SEPARATOR) for text in texts])


def main() -> None:
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["settings"])
    results = context.Queue()
    workers = []
    for shard in (["once upon a time"], ["there was"]):
        workers.append(context.Process(target=tokenize, args=(shard, results)))
        workers[-1].start()
    print([results.get() for _ in workers], flush=True)
    for one in workers:
        one.join()
    sys.exit(0)


if __name__ == "__main__":
    main()

# /// case
# command = "python train.py"
# world = "silent_service"
# culprits = [[0], [-1]]
# steps = ["script"]
# after = [""]
# own_code = true
# calls = ['start', 'urlopen', 'read_signed', 'Popen', 'launch', 'readinto']
# causes = ["endpoint-silent", "child-process-stuck", "import-stuck"]
# says = ['settings|urlopen|forkserver']
# [files]
# "settings.py" = '''
# """What the job is told by the service of its cluster."""
# import json
# import os
# import urllib.request
#
# with urllib.request.urlopen(os.environ["SERVICE"] + "/settings") as _answer:
#     SEPARATOR = json.load(_answer)["separator"]
# '''
# ///
