"""Summarize articles with a model that was trained to.

Reads one article per line: its text, or a JSON object. The object has "article" (or "source", "document",
"text"), a text or a list of paragraphs, and optionally a "title". Writes each summary on the same line of
stdout. Articles longer than those of training are cut. A run that extracts first reads the paragraphs that
match the title.

Examples: heedful summarize runs/summarize < articles.jsonl > leads.txt;
heedful summarize runs/summarize --beam 8 --json < articles.jsonl
"""

from __future__ import annotations

from dataclasses import dataclass

from ..data import articles
from .shared.lines import answer_lines
from .shared.options import WriterOptions, takes_decoding
from .shared.writing import TextWriter


@takes_decoding("summarize")
@dataclass(frozen=True, kw_only=True)
class SummarizeOptions(WriterOptions):
    """The options of `heedful summarize`."""


def summarize(given: SummarizeOptions) -> None:
    """Answer each article by its summary."""
    answer_lines(given, TextWriter(given, "summarize", articles.MOST, articles.typed_article))
