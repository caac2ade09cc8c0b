"""The logit lens: what every layer would predict, if it were the last (nostalgebraist 2020).

    seen = lens(heedful.load("runs/demo").loaded, "The small girl eats a red apple.")
    print(seen.text())                         # layers x positions, with token and probability
    seen.tokens(layer=2, position=3)           # [("chat", 0.71), ("chien", 0.08), ...]

The last norm and the output head are applied to the residual stream after each block. After the last block
these are the model's own scores, exactly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from ..data.images.preprocessing import Preprocessing
from ..data.pieces import labels
from ..errors import BadInput
from ..interop.loaded import ImageEncoder, Loaded
from ..models.base.shells import Decoder, DecoderClassifier, EncoderDecoder, WithHeads, decoder_of
from ..parts.embeddings import TokenEmbedding
from .contributions import Contribution, Sublayers, contributions
from .forward import run_once, stack_of, written_shell
from .hooks import hooked
from .lens_picture import lens_picture
from .look.drawing import Drawing, Pictured
from .look.inputs import InputTokens
from .look.shades import columns_of, padded
from .look.steps import find, table
from .model_inputs import input_of

MOST = 1024  # tokens
TOP = 5
LONG = 100  # characters of a text in a title


@dataclass(frozen=True)
class Readout:
    """From the residual stream to scores: the last norm, the output head, and the names of what is scored."""

    shell: str
    scores: Callable[[Tensor], Tensor]  # [1, T, D] to [1, T, V]
    name: Callable[[int, int], str]  # of a token, given the one before it
    head: nn.Module
    embedding: TokenEmbedding | None


@dataclass(frozen=True)
class Lens(Pictured):
    """What each layer would predict at each position, as `Model.lens` finds it. Layer 0 is the embedding.

    Attributes:
        loaded: The model.
        words: The input as tokens.
        columns: What is read at each position.
        before_T: Number of the token before the one that is predicted.
        top_LTk: The most likely tokens of each layer.
        probability_LTk: Their probabilities.
        final_T: What the model predicts.
        rank_LT: Rank of that token in each layer; 1 is the first.
        share_LT: Its probability in each layer.
        norm_LT: Length of the residual stream's vectors.
        parts: What each sublayer adds.
        stream: The residual stream after each layer, [T, D].
        readout: From the residual stream to scores.

    Example:
        >>> lens = heedful.load("runs/lm").lens("The old king is")
        >>> lens.layers, lens.predicted[-1] == lens.tokens(layer=2, position=4)[0][0]
        (['embedding', 'layer 1', 'layer 2'], True)
        >>> lens.logits(layer=1).shape == (4, lens.loaded.config.vocab)
        True
        >>> len(lens.text().splitlines())
        5
    """

    loaded: Loaded = field(repr=False)
    words: InputTokens
    columns: list[str]
    before_T: list[int] = field(repr=False)
    top_LTk: Tensor = field(repr=False)
    probability_LTk: Tensor = field(repr=False)
    final_T: Tensor = field(repr=False)
    rank_LT: Tensor = field(repr=False)
    share_LT: Tensor = field(repr=False)
    norm_LT: Tensor = field(repr=False)
    parts: list[Contribution] = field(repr=False)
    stream: list[Tensor] = field(repr=False)
    readout: Readout = field(repr=False)

    @property
    def layers(self) -> list[str]:
        """The names of the layers, the embedding first."""
        return ["embedding", *(f"layer {i}" for i in range(1, len(self.stream)))]

    @torch.no_grad()
    def logits(self, layer: int) -> Tensor:
        """The scores that the last norm and the head give to the stream after a layer.

        Args:
            layer: The layer; 0 is the embedding.

        Returns:
            Scores [T, V].
        """
        if not 0 <= layer < len(self.stream):
            raise BadInput(f"there is no layer {layer}: 0 is the embedding, {len(self.stream) - 1} the last")
        return self.readout.scores(self.stream[layer][None])[0]

    def tokens(self, layer: int, position: int) -> list[tuple[str, float]]:
        """The most likely tokens at a position.

        Args:
            layer: The layer; 0 is the embedding.
            position: The position, from 1.

        Returns:
            (token, probability), most likely first.
        """
        t = find(self.columns, position)
        pairs = zip(self.top_LTk[layer, t].tolist(), self.probability_LTk[layer, t].tolist(), strict=True)
        return [(self.readout.name(self.before_T[t], token), share) for token, share in pairs]

    @property
    def predicted(self) -> list[str]:
        """What the model predicts at each position."""
        pairs = zip(self.before_T, self.final_T.tolist(), strict=True)
        return [self.readout.name(before, token) for before, token in pairs]

    def cell(self, layer: int, t: int) -> tuple[str, float]:
        """The first token at a place, and its probability."""
        token = int(self.top_LTk[layer, t, 0])
        return self.readout.name(self.before_T[t], token), float(self.probability_LTk[layer, t, 0])

    # Pictures

    def picture(self) -> Drawing:
        """Layers down and positions across; the darker a cell, the surer the layer."""
        cells = [[self.cell(n, t) for t in range(len(self.columns))] for n in range(len(self.stream))]
        return lens_picture(cells, self.predicted, self.layers, self.columns, self.title())

    def title(self) -> str:
        side = "the decoder" if isinstance(self.loaded.model, EncoderDecoder) else "the model"
        text = " ".join((self.words.translation or self.words.text).split())
        short = text if len(text) < LONG else f"{text[: LONG - 1]}…"
        return f"logit lens: what each layer of {side} would predict\n{short}"

    # Words

    def text(self, width: int = 100) -> str:
        """A line for each position: what is read, and what each layer would predict.

        Args:
            width: Characters of a line.

        Returns:
            The lines.
        """
        columns = [[self.cell(n, t) for t in range(len(self.columns))] for n in range(len(self.stream))]
        blocks = [[f"{token} {share:.2f}" for token, share in column] for column in columns]
        wide = [max(columns_of(x) for x in (name, *c)) for name, c in zip(self.layers, blocks, strict=True)]
        left = max(4, *(columns_of(word) for word in self.columns))
        groups = grouped(wide, max(1, width - left - 2))
        return "\n\n".join(self.lines(group, blocks, wide, left) for group in groups)

    def lines(self, group: Sequence[int], cells: list[list[str]], wide: list[int], left: int) -> str:
        """Some of the layers side by side."""
        lines = [padded("read", left) + "  " + "  ".join(padded(self.layers[n], wide[n]) for n in group)]
        for t, word in enumerate(self.columns):
            row = "  ".join(padded(cells[n][t], wide[n]) for n in group)
            lines.append(f"{padded(word, left)}  {row}")
        return "\n".join(line.rstrip() for line in lines)

    def position_text(self, query: str | int) -> str:
        """One position: the predicted token's rank and probability by layer, and what each part adds."""
        t = find(self.columns, query)
        heading = f'position {t + 1}, after "{self.columns[t]}": the model predicts "{self.predicted[t]}"'
        rows = [["", "norm", "rank", "probability", "most likely"]]
        for n, name in enumerate(self.layers):
            likely = ", ".join(f"{token} {share:.2f}" for token, share in self.tokens(n, t + 1))
            numbers = f"{self.norm_LT[n, t]:.2f}", str(int(self.rank_LT[n, t])), f"{self.share_LT[n, t]:.3f}"
            rows.append([name, *numbers, likely])
        return "\n".join([heading, "", *table(rows), "", *table(self.part_rows(t))])

    def part_rows(self, t: int) -> list[list[str]]:
        """What each part adds at a position: the norm of its vector, and its share in the score."""
        linear = self.parts[0].score_T is not None
        rows = [["part", "norm added", *(["score added"] if linear else []), ""]]
        for part in self.parts:
            norm = "" if part.norm_T is None else f"{part.norm_T[t]:.2f}"
            score = [] if part.score_T is None else [f"{part.score_T[t]:+.2f}"]
            rows.append([f"layer {part.layer} {part.part}" if part.layer else part.part, norm, *score, ""])
        if linear:
            total = sum(float(part.score_T[t]) for part in self.parts if part.score_T is not None)
            rows.append(["sum: its score", "", f"{total:+.2f}", ""])
        return rows

    def as_json(self) -> dict[str, Any]:
        """All the numbers."""
        positions = range(1, len(self.columns) + 1)
        return {
            "architecture": self.loaded.architecture,
            "text": self.words.text,
            "translation": self.words.translation or None,
            "read": self.columns,
            "predicted": self.predicted,
            "layers": [
                {
                    "layer": n,
                    "top": [[list(pair) for pair in self.tokens(n, t)] for t in positions],
                    "rank": self.rank_LT[n].tolist(),
                    "probability": self.share_LT[n].tolist(),
                    "norm": self.norm_LT[n].tolist(),
                }
                for n in range(len(self.stream))
            ],
            "parts": [
                {
                    "layer": part.layer,
                    "part": part.part,
                    "norm": None if part.norm_T is None else part.norm_T.tolist(),
                    "score": None if part.score_T is None else part.score_T.tolist(),
                }
                for part in self.parts
            ],
        }


def grouped(wide: Sequence[int], room: int) -> list[list[int]]:
    """Columns in groups that fit into so many characters."""
    groups: list[list[int]] = [[]]
    for n in range(len(wide)):
        if groups[-1] and sum(wide[i] + 2 for i in groups[-1]) + wide[n] > room:
            groups.append([])
        groups[-1].append(n)
    return groups


@torch.no_grad()
def lens(
    loaded: Loaded,
    text: str | np.ndarray,
    target: str | None = None,
    *,
    top: int = TOP,
    most: int = MOST,
    preprocessing: Preprocessing | None = None,
) -> Lens:
    """What every layer of a model would predict at every position, if it were the last.

    text: a text, or the pixels of an image for a captioner. target: of an encoder-decoder, instead of its
    own greedy translation. top: how many tokens to keep at each place. most: tokens of the text.
    preprocessing: of an image, by default as the folder says.
    """
    readout = readout_of(loaded)
    stack = stack_of(loaded, readout.shell)
    given = input_of(loaded, text, target, most, preprocessing)
    caught = Sublayers(stack)
    with hooked(caught.hooks()):
        stream = run_once(loaded, given).stream(readout.shell)
    read, before = positions_of(loaded, given.words)
    final_T = readout.scores(stream[-1][None])[0].argmax(-1)
    found = [seen_at(readout, x_TD, final_T, top) for x_TD in stream]
    tops, probabilities, ranks, shares = (torch.stack(some).cpu() for some in zip(*found, strict=True))
    norms = torch.stack([x_TD.float().norm(dim=-1) for x_TD in stream]).cpu()
    parts = contributions(caught, stream[0], stream[-1], readout.head, readout.embedding, final_T)
    rest = norms, parts, stream, readout
    return Lens(loaded, given.words, read, before, tops, probabilities, final_T.cpu(), ranks, shares, *rest)


def seen_at(
    readout: Readout, x_TD: Tensor, final_T: Tensor, top: int
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Of one layer: the most likely tokens, their probabilities, and the predicted token's rank and
    probability."""
    scores_TV = readout.scores(x_TD[None])[0].float()
    probabilities_TV = scores_TV.softmax(-1)
    best = probabilities_TV.topk(min(top, probabilities_TV.shape[-1]), -1)
    own_T1 = scores_TV.gather(-1, final_T[:, None])
    rank_T = (scores_TV > own_T1).sum(-1) + 1
    return best.indices, best.values, rank_T, probabilities_TV.gather(-1, final_T[:, None])[:, 0]


def positions_of(loaded: Loaded, words: InputTokens) -> tuple[list[str], list[int]]:
    """What is read at each position, and the token that stands before the one that is predicted there."""
    if words.read:
        return labels(loaded.target_tokenizer or loaded.tokenizer, words.read), words.read
    before = words.ids if isinstance(loaded.model, Decoder) else [-1, *words.ids[:-1]]
    return labels(loaded.tokenizer, words.ids), before


def readout_of(loaded: Loaded) -> Readout:
    """What turns the residual stream into scores at every position; a refusal where nothing does."""
    model = loaded.model
    if isinstance(model, Decoder | EncoderDecoder):
        decoder = decoder_of(model)
        stack, tokens = stack_of(loaded, written_shell(model)), decoder.inputs.tokens

        def scores(x_BTD: Tensor) -> Tensor:
            return decoder.head(stack.norm(x_BTD), tokens)

        name = namer(loaded.target_tokenizer or loaded.tokenizer)
        return Readout(written_shell(model), scores, name, decoder.head, tokens)
    if isinstance(model, WithHeads) and loaded.kind is not ImageEncoder:
        for kind in ("masked_lm", "tag"):
            if kind in model.heads:
                return encoder_readout(loaded, model, kind)
    raise BadInput(f"the lens needs scores at every position, and {why_not(loaded)}")


def encoder_readout(loaded: Loaded, model: WithHeads, kind: str) -> Readout:
    """An encoder read by a head over all tokens: of the vocabulary, or of labels."""
    stack, head = stack_of(loaded, "encoder"), model.heads[kind]

    def scores(x_BTD: Tensor) -> Tensor:
        return head(model.encoder.project_out(stack.norm(x_BTD)), model.encoder.inputs)

    def label(before: int, number: int) -> str:
        return loaded.labels[number] if number < len(loaded.labels) else str(number)

    name = namer(loaded.tokenizer) if kind == "masked_lm" else label
    return Readout("encoder", scores, name, head, None)


def namer(tokenizer: Any) -> Callable[[int, int], str]:
    """The label of a token, with a mark if it goes on with the word of the token before it (-1: none)."""

    @cache
    def name(before: int, token: int) -> str:
        return labels(tokenizer, [token] if before < 0 else [before, token])[-1]

    return name


def why_not(loaded: Loaded) -> str:
    """Why a model gives no scores at every position."""
    if isinstance(loaded.model, DecoderClassifier):
        return "this classifier reads its label off the last token alone"
    if loaded.kind is ImageEncoder:
        return f"a {loaded.architecture} reads its labels off the class token or the mean of the patches"
    heads = list(getattr(loaded.model, "heads", {}))
    has = f"only the heads {', '.join(heads)}" if heads else "no head at all"
    return f"this {loaded.architecture} has {has}: give one with a masked_lm or tag head"
