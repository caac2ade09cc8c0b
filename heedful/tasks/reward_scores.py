"""Scores of a reward model, for programs that have their own prompts and responses.

judge = RewardModel.load("runs/reward", "cpu")
judge.scores([((("user", "Count the words: a b c"),), "3")])
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch

from ..data.conversations import Messages
from ..data.report import Fault
from ..decode.prompts import pad
from ..errors import BadInput
from ..files import one_line
from ..interop.formats import load
from ..interop.loaded import Loaded
from ..interop.run_files import recipe as recipe_in
from ..interop.run_folder import is_run
from ..models.base.shells import DecoderClassifier
from ..parts.places import Lengths
from .evaluation import by_length
from .instruct import last, room_of
from .instruct_data import ResponseRow, TurnTemplate, template_by, with_end
from .origin import vocab_of
from .recipe import from_json

AT_ONCE = 64  # responses
Encode = Callable[[list[str]], list[list[int]]]


@dataclass(frozen=True)
class RewardModel:
    """A reward model, which judges responses by its own chat template and vocabulary.

    It is a run of reward, or any other decoder with one score and a chat template.
    """

    folder: str
    model: DecoderClassifier
    template: TurnTemplate
    encode: Encode
    end: int  # the token behind a response
    room: int  # tokens of a prompt and a response

    @classmethod
    def load(cls, folder: str | os.PathLike[str], device: str | torch.device = "cpu") -> RewardModel:
        """The reward model of a folder, in evaluation mode.

        folder: a run of reward, or a Hugging Face folder of a decoder that classifies with one score.
        """
        loaded, name = load(folder, device), os.fspath(folder)
        model = loaded.model
        if not isinstance(model, DecoderClassifier) or model.linear.out_features != 1:
            raise BadInput(one_line(f"{name} is no reward model: train one with `heedful train reward`"))
        if loaded.chat is None or loaded.tokenizer is None:
            raise BadInput(one_line(f"{name} has no chat template, by which responses are written down"))
        if is_run(Path(folder)):
            said = recipe_in(Path(folder))
            recipe = from_json({part: value for part, value in said.items() if part != "facts"})
            vocab, room = vocab_of(Path(folder), recipe), room_of(Path(folder), recipe)
            return cls(name, model, template_by(loaded.chat), vocab.encode_batch, vocab.eos, room)
        if "eos" not in loaded.special:
            raise BadInput(one_line(f"{name} names no token that ends a response (eos_token_id)"))
        encode, room = encoder_of(loaded), loaded.config.context
        return cls(name, model, template_by(loaded.chat), encode, loaded.special["eos"], room)

    @torch.no_grad()
    def scores(self, rows: Sequence[tuple[Messages, str]]) -> list[float]:
        """The reward of each response, in order.

        rows: what was said before, as (role, text) messages, and the response. Of a prompt that is too long
        the end is read. A response that does not fit is refused.
        """
        read = self.tokens([ResponseRow(before, response) for before, response in rows])
        device, found = self.model.linear.weight.device, dict[int, float]()
        for some in by_length([len(ids) for ids in read], AT_ONCE):
            tokens_BT, lengths_B = pad([read[i] for i in some], device)
            scores_B = self.model(tokens_BT, Lengths(lengths_B))[:, 0]
            found.update(zip(some, scores_B.tolist(), strict=True))
        return [found[i] for i in range(len(read))]

    def tokens(self, rows: Sequence[ResponseRow]) -> list[list[int]]:
        """Conversations as the model reads them, each up to the end of its response."""
        texts = []
        for row in rows:
            found = self.template.texts(row)
            if isinstance(found, Fault):
                raise BadInput(one_line(f"{self.folder}: {found.why}"))
            texts.append(found)
        prompts = self.encode([prompt for prompt, _ in texts])
        responses = [with_end(ids, self.end) for ids in self.encode([said.rstrip() for _, said in texts])]
        longest = max(map(len, responses), default=0)
        if longest >= self.room:
            raise BadInput(
                one_line(
                    f"a response has {longest} tokens, and {self.folder} reads {self.room} with its prompt"
                )
            )
        both = zip(prompts, responses, strict=True)
        return [[*last(prompt, self.room - len(response)), *response] for prompt, response in both]


def encoder_of(loaded: Loaded) -> Encode:
    """Texts to token numbers, with nothing around them."""
    tokenizer = loaded.tokenizer
    assert tokenizer is not None
    return lambda texts: [one.ids for one in tokenizer.encode_batch(texts, add_special_tokens=False)]
