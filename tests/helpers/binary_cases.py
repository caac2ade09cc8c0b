"""What several tests share with tests/interop/test_ctranslate2.py."""

import pytest

from heedful.interop.binary import Bytes


def boundaries(path, read):
    """Every place at which something in a file begins."""
    found, take = set(), Bytes.take

    def noting(self, count, what):
        found.add(self.at)
        return take(self, count, what)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Bytes, "take", noting)
        read(path)
    return sorted(found)
