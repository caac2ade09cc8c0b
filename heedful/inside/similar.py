"""Similarity: how alike two models are inside, or the layers of one model.

    first, second = (heedful.load(f"runs/{name}").loaded for name in ("demo", "other"))
    similar(first, second, ["The cat sleeps.", "I eat a red apple."])         # layers by layers
    token_differences(first, second, "The cat sleeps.", "Le chat dort.").text()

Linear CKA (Kornblith et al. 2019) compares representations X [N, D] and Y [N, E] of the same N tokens. With
columns centered, it is |Y'X|^2 / (|X'X| |Y'Y|) in Frobenius norms: 1 if one is the other turned and scaled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor

from ..data.pieces import labels
from ..errors import BadInput
from ..interop.loaded import Loaded
from ..models.base.shells import Decoder, EncoderDecoder
from .forward import run_once, stack_of, written_shell
from .look.attention import look
from .look.drawing import Drawing, Pictured
from .look.heat_maps import heat_map
from .look.inputs import InputTokens, given, reading, refuse_size, tokens_of
from .look.layers import attending_shells
from .look.sheets import Sheet, sheets
from .look.steps import table
from .model_inputs import ModelInput

# Layers


def cka(x_ND: Tensor, y_NE: Tensor) -> float:
    """Linear CKA of two representations of the same rows, from 0 to 1.

    Args:
        x_ND: N vectors.
        y_NE: N other vectors.

    Returns:
        The similarity.

    Example:
        >>> x = torch.randn(20, 4)
        >>> round(float(cka(x, 3 * x)), 4)
        1.0
    """
    if len(x_ND) != len(y_NE) or len(x_ND) < 2:
        raise BadInput(
            f"CKA compares two or more rows of both, not {len(x_ND)} and {len(y_NE)}: give the same texts"
        )
    x_ND, y_NE = ((each.double() - each.double().mean(0)).cpu() for each in (x_ND, y_NE))
    both = (y_NE.mT @ x_ND).square().sum()
    alone = (x_ND.mT @ x_ND).norm() * (y_NE.mT @ y_NE).norm()
    return float(both / alone) if alone > 0 else 0.0


@dataclass(frozen=True)
class Similarity(Pictured):
    """CKA between the layers of two models, as `similar` finds it. Layer 0 is the embedding.

    Attributes:
        cka_LM: CKA of each layer of the first model (down) with each layer of the second.
        rows: Vectors that were compared.
        unit: What a vector belongs to: "tokens" or "texts".

    Example:
        >>> found = Similarity(torch.eye(2), rows=40, unit="tokens")
        >>> found.names[0], found.text().splitlines()[1].split()
        (['embedding', 'layer 1'], ['embedding', '1.00', '0.00'])
    """

    cka_LM: Tensor
    rows: int
    unit: str

    @property
    def names(self) -> tuple[list[str], list[str]]:
        """The names of the layers of both models."""
        down, across = (["embedding", *(f"layer {i}" for i in range(1, n))] for n in self.cka_LM.shape)
        return down, across

    def picture(self) -> Drawing:
        """A heat map, the first model's layers down."""
        title = f"linear CKA of {self.rows:,} {self.unit}"
        notes = ["rows: layers of the first model; columns: layers of the second"]
        return heat_map(self.cka_LM.tolist(), *self.names, title, below=notes, verb="and")

    def text(self) -> str:
        """The table for a terminal."""
        down, across = self.names
        rows = [["", *across, ""]]
        rows += [
            [name, *(f"{x:.2f}" for x in row), ""]
            for name, row in zip(down, self.cka_LM.tolist(), strict=True)
        ]
        return "\n".join(table(rows))

    def as_json(self) -> dict[str, Any]:
        """All the numbers."""
        down, across = self.names
        return {
            "down": down,
            "across": across,
            "cka": self.cka_LM.tolist(),
            "rows": self.rows,
            "unit": self.unit,
        }


def similar(
    first: Loaded,
    second: Loaded,
    texts: Sequence[str],
    targets: Sequence[str] | None = None,
    *,
    over: str = "tokens",
) -> Similarity:
    """Linear CKA between every layer of one model and every layer of another, on the same texts.

    Args:
        first: One model's `loaded`.
        second: The other's.
        texts: The texts.
        targets: For encoder-decoders, what is written: then decoders are compared, otherwise encoders.
        over: "tokens", or "texts" to compare the mean vector of each text, for models that cut texts
            differently.

    Returns:
        A `Similarity`, which a notebook shows as a picture; `.cka_LM` has the numbers.

    Example:
        >>> model = heedful.load("runs/lm").loaded
        >>> found = similar(model, model, ["The old king is", "She eats a fish"])
        >>> found.names[0][:2], round(float(found.cka_LM[1, 1]), 4)
        (['embedding', 'layer 1'], 1.0)
    """
    if over not in ("tokens", "texts"):
        raise BadInput(f'over is tokens or texts, not "{over}"')
    if targets is not None and len(targets) != len(texts):
        raise BadInput(f"there are {len(texts)} texts and {len(targets)} targets: give one for each text")
    ours, theirs = (streams_of(model, texts, targets, over) for model in (first, second))
    counts = [[len(row[0]) for row in rows] for rows in (ours, theirs)]
    if counts[0] != counts[1]:
        raise BadInput(
            f"the two models cut these texts into {sum(counts[0])} and {sum(counts[1])} tokens: "
            'compare them over="texts"'
        )
    down, across = ([torch.cat(layer) for layer in zip(*rows, strict=True)] for rows in (ours, theirs))
    return Similarity(torch.tensor([[cka(x, y) for y in across] for x in down]), sum(counts[0]), over)


def streams_of(
    loaded: Loaded, texts: Sequence[str], targets: Sequence[str] | None, over: str
) -> list[list[Tensor]]:
    """Of each text the residual stream [N, D], layer by layer."""
    shell = written_shell(loaded.model) if targets is not None else next(iter(attending_shells(loaded.model)))
    stack_of(loaded, shell)
    found = []
    for i, text in enumerate(texts):
        words = read_only(loaded, text) if targets is None else given(loaded, text, targets[i])
        stream = run_once(loaded, ModelInput(words, reading(loaded, text))).stream(shell)
        found.append([each.mean(0, keepdim=True) if over == "texts" else each for each in stream])
    return found


def read_only(loaded: Loaded, text: str) -> InputTokens:
    """A text of which only the reading counts: the decoder of an encoder-decoder gets any one token."""
    if not isinstance(loaded.model, EncoderDecoder):
        return given(loaded, text)
    ids = tokens_of(loaded, text)
    refuse_size(len(ids), "the text")
    return InputTokens(text, ids, [0], [0])


# Tokens


@dataclass(frozen=True)
class TokenDifferences(Pictured):
    """Log-probabilities that two models give to each token, as `token_differences` finds them.

    Attributes:
        tokens: The tokens.
        first_T: Log-probabilities by the first model.
        second_T: Log-probabilities by the second model.

    Example:
        >>> found = TokenDifferences(["the"], torch.tensor([-1.0]), torch.tensor([-1.5]))
        >>> found.difference_T.tolist()
        [0.5]
    """

    tokens: list[str]
    first_T: Tensor
    second_T: Tensor

    @property
    def difference_T(self) -> Tensor:
        """First minus second: positive where the first model finds the token more likely."""
        return self.first_T - self.second_T

    def text(self) -> str:
        """A line for each token."""
        columns = (self.first_T, self.second_T, self.difference_T)
        rows = [["token", "first", "second", "difference", ""]]
        rows += [
            [name, *(f"{float(each[t]):z.3f}" for each in columns), ""] for t, name in enumerate(self.tokens)
        ]
        rows.append(["sum", *(f"{float(each.sum()):z.3f}" for each in columns), ""])
        return "\n".join(table(rows))

    def picture(self) -> Drawing:
        """The differences as one row of signed cells."""
        sheet = Sheet(
            "difference of log-probabilities",
            [[x] for x in self.difference_T.tolist()],
            "tokens",
            "first minus second",
            rows=self.tokens,
        )
        return sheets(
            [[sheet]], "log-probability of each token", ["positive: the first model finds it likelier"]
        )

    def as_json(self) -> dict[str, Any]:
        """All the numbers."""
        return {
            "tokens": self.tokens,
            "first": self.first_T.tolist(),
            "second": self.second_T.tolist(),
            "difference": self.difference_T.tolist(),
        }


def token_differences(
    first: Loaded, second: Loaded, text: str, target: str | None = None
) -> TokenDifferences:
    """The log-probability of each token of a text by two models: of the target, for encoder-decoders.

    The first token of a language model's text is given, not scored.

    Args:
        first: One model's `loaded`.
        second: The other's.
        text: The text.
        target: What encoder-decoders score; None: the first model's own translation.

    Returns:
        `TokenDifferences`, which a notebook shows as a picture.

    Example:
        >>> model = heedful.load("runs/lm").loaded
        >>> token_differences(model, model, "The old king is").difference_T.tolist()
        [0.0, 0.0, 0.0]
    """
    target = same_target(first, text, target)
    (tokens, first_T), (others, second_T) = (log_probabilities(m, text, target) for m in (first, second))
    if tokens != others:
        raise BadInput(
            f"the two models cut this text into different tokens ({len(tokens)} and {len(others)}): compare "
            "the sums of their own scores (heedful score)"
        )
    return TokenDifferences(tokens, first_T, second_T)


def same_target(first: Loaded, text: str, target: str | None) -> str | None:
    """The target that both models get: the one given, or the first encoder-decoder's own translation."""
    if target is None and isinstance(first.model, EncoderDecoder):
        return given(first, text).translation
    return target


def log_probabilities(loaded: Loaded, text: str, target: str | None) -> tuple[list[str], Tensor]:
    """The tokens that a model scores, and their log-probabilities."""
    if not isinstance(loaded.model, Decoder | EncoderDecoder):
        raise BadInput(
            f"this {loaded.architecture} gives no probability to a token after those before it: compare "
            "decoders or encoder-decoders"
        )
    words = given(loaded, text, target)
    scored = words.answers or words.ids[1:]
    if not scored:
        raise BadInput("the text has one token, and the first is given, not scored: give a longer text")
    outputs = run_once(loaded, ModelInput(words, reading(loaded, text))).outputs
    logits_TV = outputs["logits"][: len(scored)]
    numbers_T1 = torch.tensor(scored, device=logits_TV.device)[:, None]
    found_T = logits_TV.double().log_softmax(-1).gather(-1, numbers_T1)[:, 0].cpu()
    names = labels((loaded.target_tokenizer if words.answers else None) or loaded.tokenizer, scored)
    return names, found_T


# Heads


@dataclass(frozen=True)
class HeadDifferences(Pictured):
    """How differently the heads of two models attend, as `head_differences` finds it.

    Attributes:
        which: "cross", "self" or "encoder" attention.
        down: The queries as words.
        across: The keys as words.
        weights: Weights of the first model minus those of the second, [H, T, S] of each layer.

    Example:
        >>> found = HeadDifferences("self", ["a", "b"], ["a", "b"], [torch.zeros(3, 2, 2)])
        >>> found.distance_LH.shape
        torch.Size([1, 3])
    """

    which: str
    down: list[str]
    across: list[str]
    weights: list[Tensor] = field(repr=False)

    @property
    def distance_LH(self) -> Tensor:
        """The total variation distance of each head's rows, on average: 0 if they are equal, 1 at most."""
        return torch.stack([each.abs().sum(-1).mean(-1) / 2 for each in self.weights])

    def text(self) -> str:
        """A line for each layer."""
        heads = [f"head {h + 1}" for h in range(len(self.weights[0]))]
        rows = [["", *heads, ""]]
        rows += [
            [f"layer {n + 1}", *(f"{x:.2f}" for x in row), ""]
            for n, row in enumerate(self.distance_LH.tolist())
        ]
        return "\n".join(table(rows))

    def picture(self) -> Drawing:
        """A heat map of layers and heads."""
        layers, heads = self.distance_LH.shape
        names = [f"layer {n + 1}" for n in range(layers)], [f"head {h + 1}" for h in range(heads)]
        note = "total variation distance between the rows of both models: 0 if equal, at most 1"
        title = f"how differently heads attend ({self.which})"
        return heat_map(self.distance_LH.tolist(), *names, title, below=[note], verb="and")

    def as_json(self) -> dict[str, Any]:
        """All the numbers."""
        return {
            "which": self.which,
            "down": self.down,
            "across": self.across,
            "distance": self.distance_LH.tolist(),
        }


def head_differences(
    first: Loaded, second: Loaded, text: str, target: str | None = None, *, which: str | None = None
) -> HeadDifferences:
    """How differently the heads of two models attend in one text, in the layers that both have.

    Both models cut the text into the same tokens, and their layers have the same number of heads.

    Args:
        first: One model's `loaded`.
        second: The other's.
        text: The text.
        target: What an encoder-decoder writes here.
        which: "cross", "self" or "encoder"; None: what the first model shows by default.

    Returns:
        `HeadDifferences`, which a notebook shows as a picture.

    Example:
        >>> model = heedful.load("runs/lm").loaded
        >>> head_differences(model, model, "The old king is").distance_LH.shape
        torch.Size([2, 4])
    """
    target = same_target(first, text, target)
    one = look(first, text, target=target, which=which)
    other = look(second, text, target=target, which=one.which)
    if (one.down, one.across) != (other.down, other.across):
        raise BadInput(
            f"the two models cut this text into different tokens ({len(one.down)} x {len(one.across)} and "
            f"{len(other.down)} x {len(other.across)}): compare models with the same tokenizer"
        )
    pairs = list(zip(one.weights.values(), other.weights.values(), strict=False))
    for n, (a, b) in enumerate(pairs):
        if a.shape != b.shape:
            raise BadInput(f"layer {n + 1} has {len(a)} heads in one model and {len(b)} in the other")
    return HeadDifferences(one.which, one.down, one.across, [a - b for a, b in pairs])
