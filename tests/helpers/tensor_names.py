"""What several tests share with tests/test_structure.py."""

import re
import sys
from pathlib import Path

import pytest
import torch

import heedful

ROOT = Path(heedful.__file__).parent


SUFFIX = re.compile(r"_([A-Z1]{1,5})$")


def lies(frame) -> list[str]:
    """Local tensors whose name does not fit their shape. A size of 1 broadcasts."""
    sizes: dict[str, int] = {}
    found = []
    for name, value in frame.f_locals.items():
        match = SUFFIX.search(name)
        if not match or not isinstance(value, torch.Tensor):
            continue
        letters = match[1]
        if len(letters) != value.ndim:
            found.append(f"{frame.f_code.co_qualname}: {name} has shape {tuple(value.shape)}")
            continue
        for letter, size in zip(letters, value.shape, strict=True):
            if letter == "1":
                if size != 1:
                    found.append(f"{frame.f_code.co_qualname}: {name} has shape {tuple(value.shape)}")
            elif size != 1 and sizes.setdefault(letter, size) != size:
                found.append(
                    f"{frame.f_code.co_qualname}: {letter} is {sizes[letter]} and, in {name}, {size}"
                )
    return found


@pytest.fixture
def told():
    """Collects every lie told while a test runs, and how many functions were listened to."""
    found: list[str] = []
    heard: set[str] = set()

    def listen(frame, event, arg):
        if event == "return" and frame.f_code.co_filename.startswith(str(ROOT)):
            heard.add(frame.f_code.co_qualname)
            found.extend(lies(frame))

    sys.setprofile(listen)
    try:
        yield found, heard
    finally:
        sys.setprofile(None)
