"""Own responses: what the model to start from says itself, as the rejected responses of dpo.

A given response that is worse in people's eyes may be one that the model would never write: to make it less
likely teaches nothing about the model's own mistakes. Here a response is drawn from the model for every
prompt, and is rejected where it differs from the chosen one (https://arxiv.org/abs/2401.01335).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import torch

from ..data.report import Fault
from ..decode.sampling import sample
from ..decode.step import step_of
from ..errors import BadInput
from ..files import inside, one_line, present, read_text, write_text
from ..models.base.shells import Decoder
from ..train.loop import seed_for
from .evaluation import by_length
from .instruct import last
from .instruct_data import TurnTemplate
from .preference_data import PairRow
from .summary_forms import device_of, padded
from .task import VocabLike

AT_ONCE = 128  # responses
LIMIT = 1 << 32  # bytes of a file
Track = Callable[[Sequence[list[int]]], Iterable[list[int]]]


@torch.no_grad()
def responses_of(
    model: Decoder,
    vocab: VocabLike,
    template: TurnTemplate,
    rows: Sequence[PairRow],
    room: tuple[int, int],
    seed: int,
    track: Track = iter,
) -> list[str | None]:
    """A response of the model to each prompt, drawn at random; None where it is the chosen one, or where the
    chat template refuses the prompt.

    room: tokens that the model reads, and those of a response. What is drawn depends on the seed and the
    place of a row alone.
    """
    texts = [template.texts(row.right) for row in rows]
    there = [i for i, text in enumerate(texts) if not isinstance(text, Fault)]
    length, longest = room[0], min(room[1], room[0])
    encoded = vocab.encode_batch([texts[i][0] for i in there])
    prompts = {i: last(ids, length - longest + 1) for i, ids in zip(there, encoded, strict=True)}
    found: list[str | None] = [None] * len(rows)
    for some in track(by_length([len(prompts[i]) for i in there], AT_ONCE)):
        group = [there[place] for place in some]
        ids = padded([prompts[i] for i in group], vocab.pad, device_of(model))
        seeds = [seed_for(seed, "own response", i) for i in group]
        for i, one in zip(
            group, sample(step_of(model), *ids, longest=longest, eos=vocab.eos, seed=seeds), strict=True
        ):
            found[i] = vocab.decode(one.words).strip()
    return [said if said != chosen_of(row, vocab) else None for said, row in zip(found, rows, strict=True)]


def chosen_of(row: PairRow, vocab: VocabLike) -> str:
    """The chosen response as the model would write it."""
    return vocab.decode(vocab.encode_batch([row.chosen.strip()])[0]).strip()


def with_own(rows: Iterable[PairRow], own: Sequence[str | None]) -> Iterator[PairRow]:
    """The rows whose own response is another than the chosen one, which is then the rejected one."""
    for row, said in zip(rows, own, strict=True):
        if said is not None:
            yield replace(row, rejected=said)


# Kept in the run


def path_of(run: Path, split: str) -> Path:
    return run / f"own-{split}.jsonl"


def keep(run: Path, split: str, own: Sequence[str | None]) -> None:
    """Write the responses down, a line for each prompt."""
    write_text(path_of(run, split), "".join(json.dumps(said) + "\n" for said in own))


def kept(run: Path, split: str, count: int) -> list[str | None]:
    """What a run has kept, of so many prompts."""
    path = inside(run, path_of(run, split).name)
    try:
        found = [json.loads(line) for line in read_text(path, LIMIT).splitlines()]
    except ValueError:
        found = []
    if len(found) != count or not all(said is None or isinstance(said, str) for said in found):
        raise BadInput(one_line(f"{path} has not {count} responses, one for each prompt: start another run"))
    return found


def is_kept(run: Path) -> bool:
    return all(present(path_of(run, split)) for split in ("train", "valid"))
