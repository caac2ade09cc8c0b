"""What tests of export and import share."""

import json

import pytest

from heedful.interop import packages

ENDS = {"bos": 0, "eos": 0}  # <|endoftext|>


def certificate(folder):
    return json.loads((folder / "parity.json").read_text())


def names(folder):
    return sorted(path.name for path in folder.iterdir())


@pytest.fixture
def without(monkeypatch):
    """As if a package had never been installed."""

    def hide(*hidden):
        def find(name):
            if name.partition(".")[0] in hidden:
                raise ModuleNotFoundError(f"No module named {name!r}", name=name)
            return heedful_import(name)

        heedful_import = packages.import_module
        monkeypatch.setattr(packages, "import_module", find)

    return hide
