"""Places in a binary file at which it can be cut."""

import pytest

from heedful.interop.binary import ByteReader


def boundaries(path, read):
    """Every place at which something in a file begins."""
    found, take = set(), ByteReader.take

    def noting(self, count, what):
        found.add(self.at)
        return take(self, count, what)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(ByteReader, "take", noting)
        read(path)
    return sorted(found)
