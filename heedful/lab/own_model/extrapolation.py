"""Extrapolation on your own model: does it predict tokens beyond its training length as well as before?

Every token beyond that length is predicted twice: in its place, after all tokens before it, and once more
from the last tokens only, so that its position is one that training has seen. The text is the same.
"""

from __future__ import annotations

import math
import statistics
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ...corpora import stories
from ...errors import BadInput
from ...files import one_line
from ...inside.corpus import texts_in
from ...inside.look.drawing import Drawing
from ...interop.loaded import IN_WORDS
from ...models.base.shells import Decoder
from ...parts.positions.absolute import Absolute, Concatenated
from ...tasks.evaluation import EvaluationRequest
from ...tasks.lm_data import held_out_text
from ...tasks.origin import vocab_of
from ...tasks.task import spread
from ...use.perplexity import token_numbers
from ...use.score import log_probabilities
from ..figures import LinePanel, figure
from ..rules import CONTRADICTED, INCONCLUSIVE, SUPPORTED
from .report import OwnModelReport, TriedStatement, directed, refusal, schemes_of

if TYPE_CHECKING:
    from ...use.model import Model

NAME = "extrapolation"
ASKED = "Does this model predict tokens beyond its training length as well as within it?"
MARGIN = 0.05  # nats per token
WINDOWS, FEWEST = 64, 4
TOKENS = 1 << 14  # of all windows, where they are long
MOST = 1 << 13  # of one window
AT_ONCE = 4096  # tokens of a batch
BINS = 8  # of positions within the training length
IN_PLACE, RECENT = "in its place", "from the last tokens"


@dataclass(frozen=True, eq=False)
class LongWindows:
    """Texts that are longer than those of training, and the loss of their tokens both ways."""

    trained: int
    losses_NT: Tensor  # of every token in its place
    recent_NB: Tensor  # of the tokens beyond, from the last tokens only
    fresh_NC: Tensor  # of some tokens within the training length, if the text began with them
    frequencies: float  # nats per token by the frequencies of these texts

    @property
    def rises(self) -> list[float]:
        """Of each window, how much higher the loss beyond is in place."""
        return (self.losses_NT[:, self.trained :] - self.recent_NB).mean(1).tolist()

    @property
    def learned(self) -> list[float]:
        """Of each window, how much better than frequencies the model is within its length."""
        return (self.frequencies - self.losses_NT[:, : self.trained].mean(1)).tolist()

    @property
    def gains(self) -> list[float]:
        """Of each window, how much the text before helps within the training length."""
        half, size = self.trained // 2, self.fresh_NC.shape[1]
        return (self.fresh_NC - self.losses_NT[:, half : half + size]).mean(1).tolist()


def try_on(model: Model, data: str | None = None) -> OwnModelReport:
    """The claim on a decoder, on the held-out text of its run or another one."""
    scheme, absolute = scheme_of(model)
    trained, why = trained_length(model)
    size = window_size(model, trained)
    ids_NT, source = windows(model, data, size)
    found = measured(model, ids_NT, trained)
    statements = judged(found, absolute)
    numbers = table(found)
    return OwnModelReport(
        NAME,
        model.folder,
        ASKED,
        statements,
        finding(found, statements, scheme),
        f"{len(ids_NT)} windows of {size} tokens ({source}); {scheme} positions; training length {trained} "
        f"({why})",
        "tokens",
        numbers,
        draw(found),
    )


# What the model is.


def scheme_of(model: Model) -> tuple[str, bool]:
    """How positions enter, and whether they are absolute; refused where the claim says nothing."""
    if model.kind is not Decoder or not getattr(model.config, "causal", True) or model.task == "summarize":
        what = "it was trained to summarize" if model.task == "summarize" else f"it is {IN_WORDS[model.kind]}"
        raise refusal(NAME, model, f"{what}, and one long text is what a language model predicts")
    found = schemes_of(model)
    if not found:
        raise refusal(NAME, model, "it has no positions, so the claim says nothing about it")
    first = found[0].encoding if isinstance(found[0], Concatenated) else found[0]
    return type(first).__name__, isinstance(first, Absolute)


def trained_length(model: Model) -> tuple[int, str]:
    """Tokens of a text in training, and where that is said."""
    longest = 0 if model.recipe is None else getattr(model.recipe.data, "max_length", 0)
    if longest and model.task == "lm":
        return longest, "data.max_length of the run"
    if getattr(model.config, "rope_scaling", None) in ("llama3", "yarn"):
        return model.config.rope_original_context, "the context before its rotary positions were scaled"
    context = getattr(model.config, "context", 0)
    if not context:
        raise refusal(NAME, model, "its settings do not say how long the texts of its training were")
    return context, "its context"


def window_size(model: Model, trained: int) -> int:
    """Tokens of a window: twice the training length, or as many as there are positions."""
    assert isinstance(model.model, Decoder)
    longest = model.model.inputs.position.longest
    size = min(2 * trained, longest or 2 * trained)
    if trained < 4:
        raise refusal(NAME, model, f"it was trained on texts of {trained} tokens, which is too short")
    if size < trained + trained // 4:
        raise refusal(
            NAME,
            model,
            f"its position table ends at {longest} tokens, and it was trained on {trained}: a learned table "
            "cannot be read beyond its end, as the lectures say",
        )
    if size > MOST:
        raise refusal(NAME, model, f"it was trained on {trained:,} tokens, and {MOST:,} are tried at most")
    return size


# The text.


def windows(model: Model, data: str | None, size: int) -> tuple[Tensor, str]:
    """Windows [N, T + 1] that do not overlap, and where they come from."""
    ids, source = stream(model, data)
    starts = list(range(0, len(ids) - size, size))
    if len(starts) < FEWEST:
        raise BadInput(
            one_line(
                f"{source}: {len(ids):,} tokens make {len(starts)} windows of {size}, and {NAME} needs "
                f"{FEWEST}: --data FILE takes a longer text"
            )
        )
    some = spread(starts, max(FEWEST, min(WINDOWS, TOKENS // size)))
    return torch.stack([ids[start : start + size + 1] for start in some]), source


def stream(model: Model, data: str | None) -> tuple[Tensor, str]:
    """The tokens of one long text."""
    if data is not None:
        lines = [text if isinstance(text, str) else text[0] for text in texts_in(data)]
        return torch.tensor(token_numbers(model, " ".join(lines))), data
    if model.recipe is not None:
        run = Path(model.folder)
        try:
            text = held_out_text(EvaluationRequest(run, model.recipe), vocab_of(run, model.recipe), 2).stream
        except BadInput as error:
            why = f"the held-out text of {run} cannot be read: {error}"
            raise BadInput(one_line(f"{why}; --data FILE takes another")) from None
        return torch.from_numpy(text[:].astype("int64")), f"held-out data of {run}"
    if model.tokenizer is None:
        raise refusal(NAME, model, "it has no tokenizer")
    prose = " ".join(sentence.text for story in stories.split("valid") for sentence in story.sentences)
    return torch.tensor(
        token_numbers(model, prose)
    ), "built-in English stories; --data FILE takes another text"


# Measuring.


@torch.no_grad()
def measured(model: Model, ids_NT: Tensor, trained: int) -> LongWindows:
    """The loss of every token in its place, and of those beyond from the last tokens only."""
    size, half = ids_NT.shape[1] - 1, trained // 2
    recent = []
    for start in range(half, size - trained + half, half):
        rows = losses(model, ids_NT[:, start : start + trained + 1])
        first = trained + (start - half)
        recent.append(rows[:, first - start : first - start + half])
    counts = ids_NT[:, 1:].flatten().bincount().double()
    shares = counts[counts > 0] / counts.sum()
    recent_NB = torch.cat(recent, 1)[:, : size - trained]
    fresh_NC = losses(model, ids_NT[:, half : half + max(1, trained // 4) + 1])
    frequencies = float(-(shares * shares.log()).sum())
    return LongWindows(trained, losses(model, ids_NT), recent_NB, fresh_NC, frequencies)


def losses(model: Model, ids_NT: Tensor) -> Tensor:
    """Nats [N, T] of every token but the first of each row."""
    network, found = model.model, []
    assert isinstance(network, Decoder)
    for some_BT in ids_NT.split(max(1, AT_ONCE // ids_NT.shape[1])):
        hidden_BTD = network.hidden(some_BT[:, :-1].to(model.device))
        found += log_probabilities(network, hidden_BTD, some_BT[:, 1:].tolist())
    return -torch.tensor(found, dtype=torch.float64)


# Judging.

OPPOSITE = {SUPPORTED: CONTRADICTED, CONTRADICTED: SUPPORTED, INCONCLUSIVE: INCONCLUSIVE}


def judged(found: LongWindows, absolute: bool) -> tuple[TriedStatement, ...]:
    """The lectures: absolute positions do not extrapolate, relative ones do better."""
    rise, learned, gains = (
        directed(found.rises, "windows", MARGIN),
        directed(found.learned, "windows"),
        directed(found.gains, "windows"),
    )
    here = f"Within {found.trained} tokens"
    better = f"{here}, the model predicts better than token frequencies."
    uses = f"{here}, a token costs less after {found.trained // 2} others than after a few."
    beyond = f"beyond {found.trained} tokens, the loss is {{}}higher in place."
    statement = (
        TriedStatement(f"Positions are absolute: {beyond.format('')}", rise.verdict, rise.why)
        if absolute
        else TriedStatement(
            f"Positions are relative: {beyond.format('not ')}", OPPOSITE[rise.verdict], rise.why
        )
    )
    control = TriedStatement(better, learned.verdict, learned.why, control=True)
    if rise.verdict == SUPPORTED:
        return statement, control
    # a model that looks at the last few tokens only is not hurt by any length, which shows nothing
    return statement, control, TriedStatement(uses, gains.verdict, gains.why, control=True)


def finding(found: LongWindows, statements: tuple[TriedStatement, ...], scheme: str) -> str:
    beyond, recent = float(found.losses_NT[:, found.trained :].mean()), float(found.recent_NB.mean())
    rise, size = statistics.fmean(found.rises), found.losses_NT.shape[1]
    statement, *controls = statements
    if controls[0].verdict != SUPPORTED:
        return (
            "Nothing can be said: this model does not predict this text better than token frequencies, not "
            "even within its training length. Take a trained model, or a text of the kind it knows."
        )
    few = found.trained - found.trained // 2
    where = (
        f"Tokens {found.trained + 1} to {size} cost {beyond:.2f} nats each in their place, and {recent:.2f}"
    )
    where += f" from the last {few} to {found.trained} tokens alone"
    if statement.verdict == INCONCLUSIVE:
        return f"{where}: too close to call over {len(found.rises)} windows. A longer text would decide."
    if rise > MARGIN:
        more = f"{math.expm1(rise):.0%} more perplexity"
        return f"No. {where}: {more}. This model ({scheme}) does better if it forgets the beginning."
    if controls[1].verdict != SUPPORTED:
        return (
            f"Nothing can be said: this model makes no use of a text of {found.trained} tokens, so a longer "
            "one cannot hurt it. Train it longer, or give it a text of the kind it knows."
        )
    return f"Yes, to {size} tokens. {where}. That says nothing about still longer texts."


def bins_of(found: LongWindows) -> list[tuple[int, int]]:
    """Equal ranges of positions, of which none is within the training length and beyond it."""
    size, width = found.losses_NT.shape[1], max(1, -(-found.trained // BINS))
    ends = [*range(0, found.trained, width), *range(found.trained, size, width), size]
    return list(pairwise(ends))


def table(found: LongWindows) -> dict[str, dict[str, float]]:
    """Losses by position."""
    rows = {}
    for start, end in bins_of(found):
        row = {IN_PLACE: float(found.losses_NT[:, start:end].mean())}
        if start >= found.trained:
            row[RECENT] = float(found.recent_NB[:, start - found.trained : end - found.trained].mean())
        rows[f"{start + 1} to {end}"] = row
    return rows


def draw(found: LongWindows) -> Drawing:
    lines: dict[str, dict[float, list[float]]] = {IN_PLACE: {}, RECENT: {}}
    for (start, end), row in zip(bins_of(found), table(found).values(), strict=True):
        for name, value in row.items():
            lines[name][(start + 1 + end) / 2] = [value]
    return figure(
        "The loss of this model by position, up to its training length and beyond",
        [
            LinePanel(
                "nats per token",
                "position in the text, in tokens",
                {name: series for name, series in lines.items() if series},
                (False, False),
                {"trained up to here": found.trained},
                (420.0, 200.0),
            )
        ],
        [
            "In its place: after all tokens before it.",
            "From the last tokens: the same tokens, at positions that training has seen.",
        ],
    )
