"""`dataclass` as in the standard library, but made when a class is first used.

Python compiles up to six methods for each dataclass, 0.5 to 1 ms. What a monitor loads before the
first barrier has some sixty, of which it uses a few: 35 ms of a processor that ranks want for their
own start (benchmarks/start_up.py).

First used is: called, or asked for its fields (dataclasses.fields, is_dataclass, a dataclass made
of it). Until then a default made by `field` is seen as what `field` returned, and mistakes in a
definition go unnoticed (tests/test_lazy_dataclass.py makes all of them).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from dataclasses import dataclass as dataclass
else:
    import os
    from _thread import RLock  # the module threading is not loaded in every rank

    _PENDING = set()  # classes that are none yet
    # Two threads may be the first. A child of fork(2) has but one, which holds nothing.
    _MAKING = RLock()
    os.register_at_fork(after_in_child=_MAKING._at_fork_reinit)

    def dataclass(cls=None, /, **options):
        """Return `cls` as dataclasses.dataclass does."""
        if cls is None:
            return lambda cls: _put_off(cls, options)
        return _put_off(cls, options)

    def _put_off(cls, options):
        def make():
            with _MAKING:
                if cls in _PENDING:
                    import dataclasses  # with `inspect` it takes 9 ms

                    # Without its own: another thread may be about to call the one that waits.
                    dataclasses.dataclass(**{**options, "init": False})(cls)
                    cls.__init__ = _make_init(cls)
                    _PENDING.discard(cls)

        def __init__(self, *args, **kwargs):
            make()
            cls.__init__(self, *args, **kwargs)

        _PENDING.add(cls)
        cls.__init__ = __init__
        cls.__dataclass_fields__ = _Fields(cls, make)
        return cls

    def _make_init(cls):
        """Return the method that a dataclass with the fields of `cls` has."""
        import dataclasses

        names = ("__dataclass_fields__", "__dataclass_params__", "__post_init__")
        base = type("Fields", (), {n: getattr(cls, n) for n in names if hasattr(cls, n)})
        made = type(cls.__name__, (base,), {"__module__": cls.__module__})
        frozen = cls.__dataclass_params__.frozen
        init = dataclasses.dataclass(repr=False, eq=False, frozen=frozen)(made).__init__
        init.__qualname__ = f"{cls.__qualname__}.__init__"
        return init

    class _Fields:
        """The fields of a class that is no dataclass yet: asked for, they are made."""

        def __init__(self, cls, make):
            self._cls = cls
            self._make = make

        def __get__(self, instance, owner):
            self._make()
            return self._cls.__dataclass_fields__
