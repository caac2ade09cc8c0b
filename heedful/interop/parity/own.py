"""Our own model, asked as another library's is, and the inputs that both are given."""

from __future__ import annotations

import random
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ...decode.step import Step, step_of
from ...models.base.shells import Decoder, DecoderClassifier, EncoderDecoder, WithHeads, shells_of
from ...parts.places import Lengths
from ..hf.probes import corpus
from ..hf.tokenizer_files import tokenizer_text
from ..loaded import Loaded
from .certificate import NEW
from .foreign import Searched

if TYPE_CHECKING:
    from tokenizers import Tokenizer


LONGEST = 48  # tokens of an input
READ, DRAWN = 10, 4  # texts and random inputs whose logits are compared
WRITTEN = 6  # inputs that are continued
SEED = 20170612


class OwnModel(Searched):
    """Our own model, asked as another library's is."""

    def __init__(self, loaded: Loaded) -> None:
        self.loaded, self.model = loaded, loaded.model
        self.end = loaded.special.get("eos")
        self.start = loaded.special.get("decoder_start", loaded.special.get("bos", 0))

    @property
    def writes(self) -> bool:
        return isinstance(self.model, Decoder | EncoderDecoder)

    @property
    def sees_pictures(self) -> bool:
        return not hasattr(self.loaded.config, "vocab")

    @property
    def compared(self) -> str:
        """What `logits` gives."""
        if isinstance(self.model, WithHeads):
            return first_head(self.model) or HIDDEN
        return "logits"

    @torch.no_grad()
    def logits(self, ids: list[int], target: list[int] | None) -> Tensor:
        ids_1T = torch.tensor([ids])
        if isinstance(self.model, EncoderDecoder):
            return self.model(ids_1T, torch.tensor([target]))[0].float()
        if isinstance(self.model, DecoderClassifier):
            return self.model(ids_1T, Lengths(torch.tensor([len(ids)]))).float()
        if isinstance(self.model, WithHeads):
            return self.read(ids_1T)[0].float()
        return self.model(ids_1T)[0].float()

    def pictures(self, images_BCHW: Tensor) -> Tensor:
        with torch.no_grad():
            return self.read(images_BCHW).float()

    @torch.no_grad()
    def other_heads(self, ids: list[int]) -> list[Tensor]:
        """What heads after the first say of a text."""
        if not isinstance(self.model, WithHeads):
            return []
        said = self.model(torch.tensor([ids]))
        names = [name for name in said if name not in NO_SCORES and name != first_head(self.model)]
        return [said[name][0].float() if said[name].ndim == 3 else said[name].float() for name in names]

    def read(self, given: Tensor) -> Tensor:
        """What the first head says, [B, T, ...]; a head that says one thing of the whole has T = 1."""
        assert isinstance(self.model, WithHeads)
        name = first_head(self.model)
        if name is not None:
            found = self.model(given)[name]
            return found if found.ndim == 3 else found[:, None]
        hidden_BTD, heads = self.model.encoder(given), self.model.heads
        if "pooled" not in heads:
            return hidden_BTD
        return torch.cat([hidden_BTD, heads["pooled"](hidden_BTD, self.model.encoder.inputs)[:, None]], 1)

    def begun(self, ids: list[int]) -> tuple[Step, Tensor]:
        if isinstance(self.model, EncoderDecoder):
            return step_of(self.model, torch.tensor([ids])), torch.tensor([[self.start]])
        assert isinstance(self.model, Decoder)
        return step_of(self.model), torch.tensor([ids])

    def tokens(self, text: str) -> list[int] | None:
        return None if self.loaded.tokenizer is None else self.reader.encode(text).ids

    @cached_property
    def reader(self) -> Tokenizer:
        """The tokenizer as it is saved, with what it puts around texts."""
        from tokenizers import Tokenizer

        ours: Any = self.loaded.tokenizer
        if not isinstance(ours, Tokenizer):
            return ours  # Marian's is saved as it came
        made = Tokenizer.from_str(tokenizer_text(ours, self.model, self.loaded.special))
        made.encode_special_tokens = ours.encode_special_tokens and not isinstance(self.model, WithHeads)
        return made

    def nll(self, ids: list[int], written: list[int], ended: bool) -> Tensor:
        """Negative log-likelihood of each token that was generated, the end included if it was."""
        tokens = [*written, *([self.end] if ended and self.end is not None else [])]
        if isinstance(self.model, EncoderDecoder):
            scores_TV = self.logits(ids, [self.start, *tokens][: len(tokens)])
        else:
            scores_TV = self.logits([*ids, *tokens][:-1], None)[len(ids) - 1 :]
        return -scores_TV.double().log_softmax(-1)[torch.arange(len(tokens)), torch.tensor(tokens)]


HIDDEN = "hidden states"
NO_SCORES = ("pooled", "class_token")  # vectors, on the way to a head


def first_head(model: WithHeads) -> str | None:
    """The head to compare; None if there are only hidden states."""
    return next((name for name in model.heads if name not in NO_SCORES), None)


def longest_of(model: nn.Module, config: Any) -> int:
    """How many tokens a model can read at least."""
    tables = [shell.inputs.position.longest for shell in shells_of(model).values()]
    return min([size for size in (*tables, getattr(config, "context", None)) if size] or [2 * LONGEST])


def inputs_for(here: OwnModel) -> tuple[list[list[int]], int]:
    """The inputs (random tokens, and texts if there is a tokenizer), and how many tokens fit after each."""
    longest = longest_of(here.model, here.loaded.config)
    new = max(1, min(NEW, longest // 2))
    room = max(1, min(LONGEST, longest if isinstance(here.model, EncoderDecoder) else longest - new))
    dice = random.Random(SEED)
    read = [ids[:room] for text in corpus() if (ids := here.tokens(text) or [])]
    read = [ids for n, ids in enumerate(read) if len(ids) > 1 and ids not in read[:n]]
    some = dice.sample(read, min(READ, len(read)))
    free = [n for n in range(here.loaded.config.vocab) if n not in here.loaded.special.values()] or [0]
    drawn = [dice.choices(free, k=min(room, length)) for length in (1, 7, 23, room)[:DRAWN]]
    return drawn + some, new
