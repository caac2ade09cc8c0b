"""Our own model, asked as another library's is."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from ..decode.step import Step, step_of
from ..interop.foreign import NetworkInput, Outputs, Searched, each_text
from ..interop.hf.tokenizer_files import tokenizer_text
from ..interop.loaded import Loaded
from ..interop.onnx.modules import names_of
from ..models.base.shells import Decoder, DecoderClassifier, EncoderDecoder, WithHeads, shells_of
from ..parts.places import Lengths
from ..parts.watch import Record, watch

if TYPE_CHECKING:
    from tokenizers import Tokenizer


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

    @torch.no_grad()
    def outputs(self, rows: list[NetworkInput]) -> list[Outputs]:
        """Of each row alone, so that another library's padding is compared with none."""
        return [self.run(row) for row in rows]

    def run(self, row: NetworkInput) -> Outputs:
        ids_1T, lengths_1 = torch.tensor([row.ids]), torch.tensor([len(row.ids)])
        if isinstance(self.model, EncoderDecoder):
            return {"logits": self.model(ids_1T, torch.tensor([row.target]))[0].float()}
        if isinstance(self.model, DecoderClassifier):
            return {"logits": self.model(ids_1T, Lengths(lengths_1)).float()}
        if isinstance(self.model, WithHeads):
            segments = None if row.segments is None else torch.tensor([row.segments])
            hidden_1TD = self.model.encoder(ids_1T, Lengths(lengths_1), segments)
            return each_text(self.heads_of(hidden_1TD), lengths_1)[0]
        return {"logits": self.model(ids_1T)[0].float()}

    @torch.no_grad()
    def pictures(self, images_BCHW: Tensor) -> list[Outputs]:
        assert isinstance(self.model, WithHeads)
        hidden_BTD = self.model.encoder(images_BCHW)
        return each_text(self.heads_of(hidden_BTD), torch.full(hidden_BTD.shape[:1], hidden_BTD.shape[1]))

    def heads_of(self, hidden_BTD: Tensor) -> Outputs:
        """Hidden states, and what every head returns, by Hugging Face's names."""
        model: Any = self.model
        found = {"last_hidden_state": hidden_BTD}
        for name, theirs in names_of(model).items():
            whole = model.heads[name](hidden_BTD, model.encoder.inputs)
            found |= zip(theirs, whole.unbind(-1) if len(theirs) > 1 else [whole], strict=True)
        return found

    def begun(self, ids: list[int]) -> tuple[Step, Tensor]:
        if isinstance(self.model, EncoderDecoder):
            return step_of(self.model, torch.tensor([ids])), torch.tensor([[self.start]])
        assert isinstance(self.model, Decoder)
        return step_of(self.model), torch.tensor([ids])

    @torch.no_grad()
    def attention(self, row: NetworkInput) -> Outputs:
        """{"encoder.self.0": weights [H, T, S]} of every layer, of the row alone."""
        with watch(self.model) as heard:
            self.run(row)
        found: Outputs = {}
        for name, shell in shells_of(self.model).items():
            for kind in ("attention", "cross"):
                layers = [part.layer for block in shell.stack.blocks if (part := getattr(block, kind))]
                side = f"{name or 'decoder'}.{'self' if kind == 'attention' else kind}"
                weights = weights_by_layer(
                    layers, {id(m): heard.get(p) for p, m in self.model.named_modules()}
                )
                found |= {f"{side}.{number}": each for number, each in enumerate(weights)}
        return found

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
            row = NetworkInput(ids, [self.start, *tokens][: len(tokens)])
            scores_TV = self.outputs([row])[0]["logits"]
        else:
            scores_TV = self.outputs([NetworkInput([*ids, *tokens][:-1])])[0]["logits"][len(ids) - 1 :]
        return -scores_TV.double().log_softmax(-1)[torch.arange(len(tokens)), torch.tensor(tokens)]


def weights_by_layer(layers: list[Any], heard: dict[int, Record | None]) -> list[Tensor]:
    """The weights of each layer in order; a layer that stands in several blocks was heard as often."""
    found, times = [], Counter[int]()
    for layer in layers:
        record = heard[id(layer)]
        assert record is not None
        found.append(record.weights[times[id(layer)]][0].float())
        times[id(layer)] += 1
    return found
