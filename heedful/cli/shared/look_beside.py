"""What `heedful look --beside` shows: two models on the same texts, layer by layer and token by token."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ...errors import BadInput
from .look_edits import texts_of

if TYPE_CHECKING:
    from ...inside.look.drawing import Drawing
    from ...inside.similar import Similarity, TokenDifferences
    from ...interop.loaded import Loaded

COMPARED = 64  # texts


@dataclass(frozen=True)
class BesideView:
    """How alike two models are: their layers over many texts, and the tokens of one text."""

    layers: Similarity
    tokens: TokenDifferences | None
    why: str = ""  # why there are no tokens, if there are none

    def text(self) -> str:
        """Both tables for a terminal."""
        cka = f"linear CKA of {self.layers.rows:,} {self.layers.unit}: layers of the first model down, of the"
        parts = [f"{cka} second across\n", self.layers.text(), ""]
        if self.tokens is None:
            return "\n".join([*parts, self.why])
        return "\n".join([*parts, "log-probability of each token\n", self.tokens.text()])

    def picture(self) -> Drawing:
        """The layers of both as a heat map."""
        return self.layers.picture()

    def as_json(self) -> dict[str, Any]:
        """All the numbers."""
        tokens = None if self.tokens is None else self.tokens.as_json()
        return {"layers": self.layers.as_json(), "tokens": tokens, "why": self.why or None}


def beside(run: str, first: Loaded, second: Loaded, text: str, target: str | None) -> BesideView:
    """Compare two models: layers on texts of the first one's run, tokens on the given text."""
    from ...inside.similar import similar, token_differences

    texts = fitting([one.text for one in texts_of(run, first, COMPARED)], first, second)
    over = "tokens" if same_tokens(first, second, texts) else "texts"
    layers = similar(first, second, texts, over=over)
    try:
        return BesideView(layers, token_differences(first, second, text, target))
    except BadInput as why:
        return BesideView(layers, None, str(why))


def fitting(texts: list[str], *models: Loaded) -> list[str]:
    """The texts that no model finds too long."""
    from ...inside.corpus import tables
    from ...inside.look.inputs import tokens_of

    for loaded in models:
        limit = min((size for size in tables(loaded) if size is not None), default=None)
        if limit is not None:
            texts = [text for text in texts if len(tokens_of(loaded, text)) <= limit]
    if not texts:
        raise BadInput("all texts to compare these models by are too long for one of them")
    return texts


def same_tokens(first: Loaded, second: Loaded, texts: list[str]) -> bool:
    """Whether two models cut texts into as many tokens."""
    from ...inside.look.inputs import tokens_of

    return all(len(tokens_of(first, text)) == len(tokens_of(second, text)) for text in texts)
