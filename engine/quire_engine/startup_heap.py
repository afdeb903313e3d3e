"""Garbage collection, out of the way of those who wait for tokens.

What a process made while it started (modules, settings, tokenizers, KV blocks) stays for as long as
it lives. A full collection looks at all of it, and finds nothing: in an API server that took 50 to
60 ms, once in ten seconds of 75 requests a second, in which no token went out and no request was
taken. So it is left out.

What streams hold is mostly no garbage either. With Python's thresholds it is looked at after every
700 new objects, and with 2,000 streams that was a third of the processor time of an API server:
6.5 us a token, where 100 streams cost 3.9, and 4.1 with those below. The price is that cyclic
garbage, of which requests leave little, lies around for longer: some MB.
"""

import gc

_NEW_OBJECTS = 20_000
"""Objects made and not freed before the youngest are looked at: about a millisecond of work."""
_YOUNG_COLLECTIONS = 20
_MIDDLE_COLLECTIONS = 50
"""Collections of the younger generations before one of the next."""


def freeze_startup_heap() -> None:
    """Leave all objects there are out of later, rarer collections; called once, when ready."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(_NEW_OBJECTS, _YOUNG_COLLECTIONS, _MIDDLE_COLLECTIONS)
