"""Translate lines of text with a model that was trained to.

Reads one sentence per line and writes its translation on the same line of stdout. An empty line gives an
empty line. Use this command for every encoder-decoder that turns text into text.

Examples: heedful translate runs/demo "The small girl eats a red apple.";
heedful translate runs/demo < in.en > out.fr;
heedful translate runs/demo --beam 8 --length-alpha 1 --length-penalty power < in.en;
heedful translate runs/demo --align "The cat was fast.";
heedful translate runs/demo --tree "The cat was fast.";
heedful translate runs/demo --n-best 3 --json < in.en; heedful translate ./opus-mt --prefix "Je" < in.en;
heedful translate ./nllb --source-lang eng_Latn --target-lang fra_Latn < in.en
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from .shared.lines import answer_lines
from .shared.options import TreeOptions, WriterOptions, arg, takes_decoding
from .shared.trees import writer_for


@takes_decoding("translate")
@dataclass(frozen=True, kw_only=True)
class TranslateOptions(TreeOptions, WriterOptions):
    """The options of `heedful translate`."""

    trees: Annotated[str | None, arg("FILE", "none")] = None
    """The trees of the texts, CoNLL-U, for a model whose positions come from syntax: one for each line that
    says something."""
    source_lang: Annotated[str | None, arg("CODE", "as the folder says")] = None
    """The language of the texts, for a model that knows many (NLLB, M2M100, mBART): eng_Latn, en or en_XX."""
    target_lang: Annotated[str | None, arg("CODE", "as the folder says")] = None
    """The language to translate into, for a model that knows many."""


def translate(given: TranslateOptions) -> None:
    """Answer each line by its translation."""
    answer_lines(given, writer_for(given, "translate"))
