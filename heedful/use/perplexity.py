"""Perplexity: how well a language model predicts a long text, window by window.

    tokens      0 1 2 3 4 5 6 7 8 9 ..           context 6, stride 3
    window 1    0 1 2 3 4 5                      predicts 1 to 6, all of which count
    window 2          3 4 5 6 7 8                predicts 4 to 9, of which 7 to 9 count

Every token but the first counts once. With a stride as long as the context, windows stand side by side and
the first token of each is predicted from nothing but its neighbor. A shorter stride gives every token at
least `context - stride` tokens before it, and takes `context / stride` times as long.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..decode.prompts import pad
from ..errors import BadInput
from ..interop.loaded import IN_WORDS
from ..models.base.shells import Decoder, EncoderDecoder
from ..parts.places import Lengths
from .batches import in_batches
from .score import log_probabilities
from .wording import FolderWording, encoded, table_of, without_end

if TYPE_CHECKING:
    from .model import Model

USUAL = 1024  # tokens of a window, where neither positions nor settings end
UNIT = 64  # neighboring tokens that count as one observation of the interval
FEWEST = 8  # observations that an interval needs
NORMAL = 1.96  # standard errors on either side, at 95 %


@dataclass(frozen=True)
class TextScores:
    """How well a text was predicted.

    Attributes:
        nll: Negative log-likelihood of each token that counts, in nats.
        windows: Number of windows.
        context: Tokens that a window reads.
        stride: Tokens from one window to the next.
        bytes: Size of the text in UTF-8.

    Example:
        >>> scores = TextScores([2.0, 4.0], windows=1, context=8, stride=8, bytes=10)
        >>> scores.loss, round(scores.perplexity(scores.loss), 2), round(scores.bits(scores.loss), 3)
        (3.0, 20.09, 0.866)
        >>> scores.metrics["loss"], scores.intervals  # too short for an interval
        (3.0, {})
    """

    nll: Sequence[float]
    windows: int
    context: int
    stride: int
    bytes: int  # of the text, in UTF-8

    @property
    def loss(self) -> float:
        """Nats per token."""
        return math.fsum(self.nll) / len(self.nll)

    @property
    def metrics(self) -> dict[str, float]:
        """Loss, perplexity and bits per byte, by name."""
        return {
            "loss": self.loss,
            "perplexity": self.perplexity(self.loss),
            "bits_per_byte": self.bits(self.loss),
        }

    def perplexity(self, loss: float) -> float:
        """The perplexity of a loss.

        Args:
            loss: Nats per token.

        Returns:
            exp(loss).
        """
        return math.exp(min(loss, 700.0))

    def bits(self, loss: float) -> float:
        """The bits per byte of a loss.

        Args:
            loss: Nats per token.

        Returns:
            Bits per byte of this text.
        """
        return loss * len(self.nll) / math.log(2) / self.bytes

    @property
    def intervals(self) -> dict[str, tuple[float, float]]:
        """Where the figures of other texts like this one would be, at 95 %; none for a short text."""
        error = standard_error(self.nll)
        if error is None:
            return {}
        ends = [self.loss - NORMAL * error, self.loss + NORMAL * error]
        forms: dict[str, Callable[[float], float]] = {
            "loss": float,
            "perplexity": self.perplexity,
            "bits_per_byte": self.bits,
        }
        return {name: (form(ends[0]), form(ends[1])) for name, form in forms.items()}


def standard_error(nll: Sequence[float]) -> float | None:
    """Of the mean. Neighbors depend on each other: an observation is the mean of `UNIT` tokens in a row."""
    means = [math.fsum(nll[i : i + UNIT]) / UNIT for i in range(0, len(nll) - UNIT + 1, UNIT)]
    if len(means) < FEWEST:
        return None
    middle = math.fsum(means) / len(means)
    variance = math.fsum((mean - middle) ** 2 for mean in means) / (len(means) - 1)
    return math.sqrt(variance / len(means))


def perplexity(
    model: Model, text: str, context: int | None = None, stride: int | None = None, batch: int = 32
) -> TextScores:
    """Measure how well a decoder predicts a text of any length, window by window.

    Args:
        model: A decoder.
        text: The text.
        context: Tokens that a window reads. None: the model's own context.
        stride: Tokens from one window to the next. None: the context.
        batch: Windows computed at once.

    Returns:
        `TextScores`, with the loss in nats per token, perplexity and bits per byte.

    Raises:
        BadInput: The model gives a text alone no probability, or the text is too short.

    Example:
        >>> found = perplexity(heedful.load("runs/lm"), "The old king is going to be a very famous man.")
        >>> sorted(found.metrics), found.windows
        (['bits_per_byte', 'loss', 'perplexity'], 1)
    """
    check_decoder(model)
    ids = token_numbers(model, text)
    if len(ids) < 2:
        raise BadInput(f"a text of {len(ids)} tokens has none to predict: give a longer one")
    context = checked_context(model, context)
    stride = context if stride is None else stride
    if not 1 <= stride <= context:
        raise BadInput(f"--stride must be 1 to {context:,}, the tokens that a window reads, not {stride:,}")
    windows = list(windows_of(len(ids), context, stride))
    network: Any = model.model

    def do(some: list[int]) -> list[list[float]]:
        rows = [ids[start : end + 1] for start, _, end in (windows[i] for i in some)]
        read_BT, lengths_B = pad([row[:-1] for row in rows], model.device)
        hidden_BTD = network.hidden(read_BT, Lengths(lengths_B))
        return log_probabilities(network, hidden_BTD, [row[1:] for row in rows])

    found = in_batches([ids[start:end] for start, _, end in windows], batch, do)
    nll = [
        -p for (start, first, _), row in zip(windows, found, strict=True) for p in row[first - start - 1 :]
    ]
    return TextScores(nll, len(windows), context, stride, len(text.encode("utf-8", "replace")))


def windows_of(tokens: int, context: int, stride: int) -> Iterator[tuple[int, int, int]]:
    """(first token read, first token that counts, last token predicted) of each window."""
    start, counted = 0, 1
    while counted < tokens:
        end = min(start + context, tokens - 1)
        yield start, counted, end
        start, counted = start + stride, end + 1


def token_numbers(model: Model, text: str) -> list[int]:
    """A text after the token that begins one, where the model knows such a token; however long it is."""
    words = model.wording
    around = isinstance(words, FolderWording)
    encoding = next(encoded(words.reads, [text], around))
    ids = without_end(encoding)
    begin = [] if words.begin is None or ids[:1] == [words.begin] else [words.begin]
    return [*begin, *ids]


def checked_context(model: Model, context: int | None) -> int:
    """Tokens of a window, at most as many as there are positions."""
    table = table_of(model.model)
    if context is None:
        return min(table or 1 << 30, getattr(model.config, "context", 0) or table or USUAL)
    if context < 1 or table is not None and context > table:
        most = "" if table is None else f" to {table:,}, its positions"
        raise BadInput(f"--context must be at least 1{most}, not {context:,}")
    return context


def check_decoder(model: Model) -> None:
    """Refuse what gives a text no probability, and say what to use instead."""
    if not getattr(model.config, "causal", True):
        raise BadInput(
            f"{model.folder} attends in both directions, and so predicts no text: use a causal model"
        )
    if model.kind is Decoder and model.task != "summarize":
        return
    pair = model.kind is EncoderDecoder
    instead = "use heedful score with targets" if pair else "use a decoder, or heedful fill for single words"
    raise BadInput(
        f"{model.folder} is {IN_WORDS[model.kind]}, which gives a text alone no probability: {instead}"
    )
