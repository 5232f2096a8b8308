"""As little of torch as makes a program a rank, and lets it train."""

from . import optim as optim
from . import serialization as serialization
from .serialization import load as load

__version__ = "2.13.0"
