"""The built-in corpus: Python's own source, the same twice, and functions with what they say they do."""

import ast
import re
import sysconfig
from pathlib import Path

import pytest

from heedful.corpora import pylib
from heedful.errors import BadInput

SOURCE = '''
@decorate("é")
def plain(x):  # a comment
    """Add one. And more.

    Much more.
    """
    return x + 1

class Thing:
    async def method(self):
        "É, the first sentence, e.g. this one"  # stays
        text = """
not indented
"""
        return text

    def one_line(self): "Short."; return 2

    def only_doc(self):
        """Says nothing else."""

    def nothing(self):
        return 3

    def inner(self):
        """Outer."""
        @decorate
        def deep():
            \'\'\'Is   it
            deep? Yes.\'\'\'

            return 4
        return deep
'''


@pytest.fixture
def library(tmp_path):
    """A small library with everything that must be left out."""
    for name, text in {
        "b.py": SOURCE,
        "a/__init__.py": "# é\r\nx = 1\r\n",
        "a/c.py": "\ufeffy = 2\n",
        "a/data.txt": "no",
        "empty.py": "\n",
        "broken.py": "def f(:\n",
        "test/test_a.py": "no",
        "a/tests/d.py": "no",
        "idlelib/idle_test/e.py": "no",
        "site-packages/f.py": "no",
        "__pycache__/g.py": "no",
        "_sysconfigdata__linux.py": "no",
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_bytes(text.encode())
    (tmp_path / "latin.py").write_bytes(b"# -*- coding: latin-1 -*-\n# \xe9\n")
    return tmp_path


def test_documents_are_sorted_and_what_is_no_source_is_left_out(library):
    found = dict(pylib.documents(library))
    assert list(found) == ["a/__init__.py", "a/c.py", "b.py", "broken.py"]
    assert (found["a/__init__.py"], found["a/c.py"]) == ("# é\nx = 1\n", "y = 2\n")
    (library / "empty").mkdir()
    with pytest.raises(BadInput, match="holds no Python source"):
        list(pylib.documents(library / "empty"))


def test_functions_come_without_their_docstring(library):
    found = dict(pylib.docstrings(folder=library))
    assert {sentence: source for source, sentence in found.items()} == {
        "Add one.": '@decorate("é")\ndef plain(x):  # a comment\n    return x + 1',
        "É, the first sentence, e.g. this one": (
            "async def method(self):\n    # stays\n"
            '        text = """\nnot indented\n"""\n        return text'.replace("        ", "    ")
        ),
        "Short.": "def one_line(self): return 2",
        "Outer.": (
            "def inner(self):\n    @decorate\n    def deep():\n        '''Is   it\n"
            "        deep? Yes.'''\n\n        return 4\n    return deep"
        ),
        "Is it deep?": "@decorate\ndef deep():\n    return 4",
    }
    parts = [set(pylib.docstrings(part, library)) for part in ("train", "valid")]
    assert not parts[0] & parts[1] and parts[0] | parts[1] == set(found.items())


def test_the_hash_tells_corpora_apart(library):
    before = pylib.content_hash(library)
    assert before == pylib.content_hash(library) and re.fullmatch("[0-9a-f]{64}", before)
    (library / "a" / "data.txt").write_text("more")
    assert pylib.content_hash(library) == before
    (library / "b.py").rename(library / "bb.py")
    renamed = pylib.content_hash(library)
    (library / "bb.py").write_text(SOURCE + " ")
    assert len({before, renamed, pylib.content_hash(library)}) == 3


def test_this_python_has_a_corpus():
    found = list(pylib.documents())
    names = [name for name, _ in found]
    assert names == sorted(set(names)) and {"ast.py", "json/decoder.py"} <= set(names)
    assert not any({"test", "tests", "site-packages", "idle_test"} & set(Path(name).parts) for name in names)
    assert sum(len(text) for _, text in found) > 5_000_000
    assert dict(found)["ast.py"] == Path(sysconfig.get_path("stdlib"), "ast.py").read_text(encoding="utf-8")
    valid = [name for name in names if pylib.split(name) == "valid"]
    assert 0.05 < len(valid) / len(names) < 0.15
    assert pylib.split("ast.py") == pylib.split("ast.py") and {pylib.split(name) for name in names} == {
        "train",
        "valid",
    }


def test_functions_of_this_python_are_code_and_sentences():
    """A few files stand for all: of some 6,700 functions, every one parses."""
    texts = dict(pylib.documents())
    found = [
        pair
        for name in ("ast.py", "pydoc.py", "argparse.py")
        for pair in pylib.described_functions(texts[name])
    ]
    assert len(found) > 50
    for source, sentence in found:
        (node,) = ast.parse(source).body
        assert ast.get_docstring(node) is None
        assert sentence == " ".join(sentence.split()) and sentence
