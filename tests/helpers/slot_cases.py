"""Rows of all kinds, written together and each alone."""

from __future__ import annotations

import random
import tempfile
import warnings
from collections.abc import Collection, Sequence
from pathlib import Path

import torch
from transformers.utils import logging

import heedful
from heedful.decode.filters import (
    forbidden,
    forced_prefix,
    min_p,
    minimum_length,
    no_repeat_ngram,
    repetition_penalty,
    temperature,
    top_k,
    top_p,
)
from heedful.decode.greedy import greedy
from heedful.decode.sampling import sample
from heedful.decode.slots import Row, Slots
from heedful.decode.step import step_of
from heedful.models.base.shells import Decoder, EncoderDecoder, decoder_of
from helpers import hf_zoo

END = 2
FILTERS = [
    list,
    lambda: [repetition_penalty(1.3)],
    lambda: [no_repeat_ngram(2), temperature(0.7), top_k(5)],
    lambda: [temperature(1.4), top_p(0.8)],
    lambda: [minimum_length(4, END), min_p(0.05)],
    lambda: [forbidden([3, [4, 5], [6, 7, 8]]), top_k(3), top_p(0.9)],
    lambda: [forced_prefix([[7, 4]]), repetition_penalty(0.8), temperature(0.9)],
]
Written = dict[int, tuple[list[int], list[float]]]  # tokens and log-probabilities of each row


def random_rows(model: Decoder | EncoderDecoder, dice: random.Random, count: int) -> list[Row]:
    """Greedy and sampled rows with and without filters, of prompts and lengths that all differ."""
    vocab = len(decoder_of(model).inputs.tokens.weight)
    table = decoder_of(model).inputs.position.longest or 1000
    read = len(model.encoder.inputs.tokens.weight) if isinstance(model, EncoderDecoder) else 0
    rows = []
    for number in range(count):
        prompt = [dice.randrange(vocab) for _ in range(dice.randint(1, min(14, table - 3)))]
        rows.append(
            Row(
                prompt,
                dice.randint(1, min(12, table - len(prompt) + 1)),
                frozenset([END]),
                [dice.randrange(read) for _ in range(dice.randint(1, 9))] if read else None,
                dice.choice(FILTERS)(),
                dice.choice([None, 1000 + number]),
            )
        )
    return rows


def alone(model: Decoder | EncoderDecoder, row: Row) -> tuple[list[int], list[float]]:
    """What a search of this text alone writes, and with which log-probabilities."""
    source = () if row.source is None else (torch.tensor([row.source]), torch.tensor([len(row.source)]))
    step, prompt_1T = step_of(model, *source), torch.tensor([row.prompt])
    how = {"longest": row.longest, "eos": list(row.ends), "filters": row.filters}
    if row.seed is None:
        (found,) = greedy(step, prompt_1T, **how)
    else:
        (found,) = sample(step, prompt_1T, **how, seed=[row.seed])
    return found.tokens, found.log_probabilities


def together(
    slots: Slots, rows: Sequence[Row], dice: random.Random, dropped: Collection[int] = ()
) -> Written:
    """What the rows write when each joins at a random moment; those dropped are removed at one."""
    waiting = list(rows)
    written: Written = {number: ([], []) for number in range(len(rows))}
    numbers = {row: number for number, row in enumerate(rows)}
    while waiting or slots.busy:
        for _ in range(min(len(waiting), dice.choice([0, 0, 1, 3]))):
            slots.add([waiting.pop(0)])
        for news in slots.turn():
            assert not news.fault, news.fault
            written[numbers[news.row]][0].append(news.token)
            written[numbers[news.row]][1].append(news.log_probability)
        for number in dropped:
            if dice.random() < 0.2 and rows[number] not in waiting:
                slots.remove(rows[number])
    assert not slots.cache.rows and not slots.cache.bytes
    return written


def largest_difference(model: Decoder | EncoderDecoder, rows: Sequence[Row], written: Written) -> float:
    """Of log-probabilities to those of each row alone, whose tokens must be the same."""
    worst = 0.0
    for number, row in enumerate(rows):
        tokens, log_p = alone(model, row)
        assert written[number][0] == tokens, (number, row)
        worst = max([worst, *gaps(log_p, written[number][1])])
    return worst


def gaps(some: Sequence[float], others: Sequence[float]) -> list[float]:
    """How far numbers are from others; 0 where both are infinite."""
    return [abs(a - b) for a, b in zip(some, others, strict=True) if a != b]


READERS = {  # families of Hugging Face without a model that writes
    "bert", "vit", "distilbert", "ernie", "deit", "albert", "deberta", "deberta_v1", "roberta",
    "xlm_roberta", "camembert", "electra", "mpnet", "modernbert",
}  # fmt: skip
WRITERS = [name for name in hf_zoo.FAMILIES if name not in READERS]


def zoo_model(family: str, seed: int) -> Decoder | EncoderDecoder:
    """A tiny model in Hugging Face's files, as heedful loads it."""
    logging.disable_progress_bar()
    case = hf_zoo.make(family, seed)
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        hf_zoo.write(case, Path(folder))
        return heedful.load(folder).model
