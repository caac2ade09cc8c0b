"""A bad folder is refused in one sentence."""

import signal
from contextlib import contextmanager

import pytest

import heedful

JARGON = (
    "Traceback",
    "NoneType",
    "unhashable",
    "subscriptable",
    "argument '",
    "object is",
    "object has",
    "c10::",
    "Errno",
)


@contextmanager
def at_most(seconds):
    """A load must not wait for ever: for a pipe, or for a pattern."""

    late = []

    def too_late(*_):
        late.append(True)
        raise TimeoutError

    signal.signal(signal.SIGALRM, too_late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        assert not late, f"this took more than {seconds} seconds"  # even if the error was taken for another


def refused(folder, *words):
    """The one sentence with which a folder is refused; it holds these words and nothing for programmers."""
    with at_most(10), pytest.raises(heedful.BadInput) as caught:
        heedful.load(folder)
    said = str(caught.value)
    assert type(caught.value) is heedful.BadInput
    assert said.isprintable() and len(said) <= 2000
    for word in words:
        assert str(word) in said
    assert not [word for word in JARGON if word in said], said
    return said
