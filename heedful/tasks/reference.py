"""The reference of dpo: log-probabilities of every response by the model to start from, kept in the run.

They are computed once, before the first step and in fp32, so that no second model stays in memory. A run that
goes on reads them again, bit for bit. The file says which pairs and which model it is about.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

from ..errors import BadInput
from ..files import inside, one_line, present, write_bytes
from ..interop.formats import load
from ..interop.hf.weights import headers, opened, read_tensors
from ..models.base.shells import Decoder
from ..parts.aux_loss import Aux
from ..parts.places import Packed
from ..train.loss import NOTHING, scores_of
from ..train.preference import token_logprobs
from .origin import DECODERS, Origin, check_same, source_of
from .preference_data import PairRows, PairTokens, PreferenceBatch, by_pair
from .task import chunks

FILE, ABOUT = "reference.safetensors", "about"
ROWS = 8  # rows of pairs that are read at once
QUIET = 10.0  # seconds between two sentences about how far it is

T = TypeVar("T")
Say = Callable[[str], None]


def response_logprobs(model: Decoder, batch: PreferenceBatch, aux: Aux | None = None) -> Tensor:
    """log pi(y | x) [N] of every response: the sum over its tokens and its end, given all before each."""
    hidden_BTD = model.hidden(batch.tokens_BT, Packed(batch.documents_BT), aux=aux)
    here_BT = batch.answers_BT != NOTHING
    scores_AV = scores_of(model)(hidden_BTD[here_BT])
    scores_AV = scores_AV if scores_AV.dtype == torch.float64 else scores_AV.float()
    logprobs_A = token_logprobs(scores_AV, batch.answers_BT[here_BT])
    return logprobs_A.new_zeros(len(batch.ends_N)).index_add(0, batch.documents_BT[here_BT], logprobs_A)


@torch.no_grad()
def logprobs_of(model: Decoder, rows: PairRows, parts: Iterable[list[int]]) -> np.ndarray:
    """log pi [2, P] of the chosen and of the rejected responses, in the order of the pairs."""
    found = np.zeros((2, len(rows.tokens)), np.float32)
    for part in parts:
        batch = rows.batch(part)
        sides = by_pair(response_logprobs(model, batch.to(model.inputs.tokens.weight.device)))
        found[:, list(batch.ids)] = torch.stack(sides).cpu().numpy()
    return found


def pairs_hash(tokens: Sequence[PairTokens]) -> str:
    """SHA-256 of some pairs, in their order."""
    found = hashlib.sha256()
    for number in range(len(tokens)):
        one = tokens[number]
        for part in (one.prompt, *one.sides):
            ids = np.asarray(part, np.int64)
            found.update(len(ids).to_bytes(8, "little") + ids.tobytes())
    return found.hexdigest()


@dataclass(frozen=True)
class KeptReference:
    """log ref(y | x) [2, P] of the chosen and the rejected responses of pairs, by their numbers."""

    learned: np.ndarray
    held_out: np.ndarray

    def of(self, batch: PreferenceBatch) -> Tensor:
        """Those of a batch of training pairs [N], where the batch is."""
        some = self.learned[:, list(batch.ids)].T.reshape(-1)
        return torch.from_numpy(some).to(batch.tokens_BT.device)


def labels_of(origin: Origin, learned: PairRows, held_out: PairRows) -> dict[str, str]:
    """What the file says it is about."""
    pairs = {"learned": pairs_hash(learned.tokens), "held_out": pairs_hash(held_out.tokens)}
    return {"model": origin.sha256, **pairs}


def compute(
    run: Path, origin: Origin, learned: PairRows, held_out: PairRows, device: torch.device, say: Say
) -> None:
    """Compute the reference of a run and keep it, unless the run has it already."""
    if present(run / FILE):
        return
    model = reference_model(origin, device)
    found = {}
    for name, rows in (("learned", learned), ("held_out", held_out)):
        parts = list(chunks(range(rows.apart.rows), ROWS))
        told = spoken(say, "log-probabilities of the reference", parts)
        found[name] = torch.from_numpy(logprobs_of(model, rows, told))
    said = labels_of(origin, learned, held_out) | {"numbers": numbers_hash(found)}
    write_bytes(run / FILE, save(found, {ABOUT: json.dumps(said)}))  # one entry: several come in any order


def numbers_hash(found: Mapping[str, Tensor]) -> str:
    """SHA-256 of the log-probabilities: no format notices a flipped bit on its own."""
    return hashlib.sha256(b"".join(found[name].numpy().tobytes() for name in sorted(found))).hexdigest()


def reference_model(origin: Origin, device: str | torch.device) -> Decoder:
    """The model to start from, as it was when the run began."""
    if not Path(origin.folder).exists():
        told = f"{origin.folder} is missing, whose log-probabilities are the reference"
        raise BadInput(one_line(f"{told}: put it back"))
    check_same(origin)
    model = source_of(load(origin.folder, device), origin.folder, DECODERS)
    assert isinstance(model, Decoder)
    return model


def spoken(say: Say, doing: str, parts: Sequence[T]) -> Iterator[T]:
    """The same parts, with a sentence now and then about how many of them are done."""
    spoke = time.monotonic()
    for done, part in enumerate(parts):
        if time.monotonic() - spoke > QUIET:
            spoke = time.monotonic()
            say(f"{doing}: {done / len(parts):.0%}")
        yield part


def read_reference(run: Path, origin: Origin, learned: PairRows, held_out: PairRows) -> KeptReference:
    """What a run has kept, if it is about these pairs and this model."""
    path = inside(run, FILE)
    with opened(path) as file:
        said = json.loads((file.metadata() or {}).get(ABOUT, "{}"))
    found = {name: tensor.clone() for name, tensor in read_tensors(headers(path))}
    if said.pop("numbers", "") != numbers_hash(found):
        raise BadInput(one_line(f"{path} is damaged: delete it, and it is computed again"))
    if said != labels_of(origin, learned, held_out):
        told = f"{path} is about other pairs or another model than this run has"
        raise BadInput(one_line(f"{told}: delete it, and it is computed again"))
    return KeptReference(found["learned"].numpy(), found["held_out"].numpy())
