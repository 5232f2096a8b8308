"""Holds every function that names.json names, and says what each is: at first, after the first
step of training, and after many. argv[1] is what of it: `pickle`, `copies`, `looks`, `code`.
"""

import copy
import functools
import importlib
import inspect
import json
import pickle
import sys

with open("names.json") as file:
    NAMES = json.load(file)


def held():
    found = {}
    for module, dotted in NAMES:
        owner = importlib.import_module(module)
        for word in dotted.split("."):
            owner = getattr(owner, word)
        found[f"{module}:{dotted}"] = owner
    return found


def pickled(function, now):
    try:
        again = pickle.loads(pickle.dumps(function))
        part = pickle.loads(pickle.dumps(functools.partial(function, 1)))
        return again is function, part.func is function
    except Exception as error:
        return (type(error).__name__,)


def copies(function, now):
    same = copy.copy(function) is function, copy.deepcopy(function) is function
    return (*same, now is function, now == function, hash(now) == hash(function))


def looks(function, now):
    names = function.__name__, function.__qualname__, function.__module__
    texts = inspect.signature(function), inspect.getdoc(function), inspect.getsource(function)
    return (*names, *texts, inspect.isfunction(function), callable(function), repr(type(function)))


def code(function, now):
    raw = getattr(function, "__func__", function)
    defaults = raw.__defaults__, raw.__kwdefaults__, raw.__annotations__
    return (*defaults, raw.__code__.co_varnames, inspect.getsourcefile(function))


SAID = {"pickle": pickled, "copies": copies, "looks": looks, "code": code}[sys.argv[1]]


def say(when, first):
    for (name, function), now in zip(first.items(), held().values(), strict=True):
        print(when, name, *map(repr, SAID(function, now)))


first = held()
say("before", first)
import torch.optim.optimizer  # noqa: E402  what is held first, is held without torch's steps

optimizer = torch.optim.optimizer.SGD()
optimizer.step()
say("while", first)
for _ in range(20):
    optimizer.step()
say("after", first)
