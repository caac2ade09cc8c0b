"""A CTranslate2 folder as its own library opens it, on the CPU."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from ..binary import mapped
from ..foreign import NetworkInput, Outputs
from ..hf.token_settings import reads_special_tokens_as_text
from ..hf.tokenizer import TOKENIZER
from ..packages import needed
from .file import read_head
from .vocabulary import MODEL, VOCABULARIES

if TYPE_CHECKING:
    from tokenizers import Tokenizer


def reopen(folder: Path, exact: bool = False) -> CTranslate2Model:
    """The model as CTranslate2 opens it, on the CPU. exact: products in float32, whatever is stored."""
    return CTranslate2Model(folder, exact)


class CTranslate2Model:
    """A CTranslate2 folder, by its own library."""

    def __init__(self, folder: Path, exact: bool = False) -> None:
        library = needed("ctranslate2", "ctranslate2")
        with mapped(folder / MODEL) as data:
            self.kind = read_head(data)[0]
        opened = {
            "TransformerSpec": library.Translator,
            "TransformerDecoderSpec": library.Generator,
            "TransformerEncoderSpec": library.Encoder,
        }[self.kind]
        self.model = opened(
            str(folder),
            inter_threads=1,
            intra_threads=torch.get_num_threads(),
            compute_type="float32" if exact else "default",
        )
        self.computes = self.model.compute_type.partition("_")[0]  # int8_float32: products of whole numbers
        kept = [folder / name for name in VOCABULARIES if (folder / name).exists()]
        lists = [json.loads(path.read_text(encoding="utf-8")) for path in kept]
        self.reads, self.writes = lists[0], lists[-1]
        self.numbers = {word: number for number, word in enumerate(self.writes)}
        self.tokenizer = opened_tokenizer(folder)

    def outputs(self, rows: list[NetworkInput]) -> list[Outputs]:
        if self.kind == "TransformerDecoderSpec":
            return [{"logits": tensor(self.model.forward_batch([row.ids]))[0]} for row in rows]
        if self.kind == "TransformerEncoderSpec":
            return [self.encoded(row) for row in rows]
        return [{"logits": self.decoded(row)} for row in rows]

    def encoded(self, row: NetworkInput) -> Outputs:
        segments = None if row.segments is None else [row.segments]
        output = self.model.forward_batch([row.ids], token_type_ids=segments)
        found = {"last_hidden_state": tensor(output.last_hidden_state)[0]}
        pooled = output.pooler_output
        return found if pooled is None else found | {"pooler_output": tensor(pooled)}

    def decoded(self, row: NetworkInput) -> Tensor:
        """Logits after each token of the target, which the search is made to follow."""
        forced = [self.writes[number] for number in (row.target or [])[1:]]
        how = {"beam_size": 1, "max_decoding_length": len(forced) + 1, "min_decoding_length": 0}
        output = self.model.translate_batch(
            [self.source(row.ids)],
            target_prefix=[forced],
            max_input_length=0,
            return_logits_vocab=True,
            **how,
        )
        return torch.stack([tensor(step).flatten() for step in output[0].logits[0]])

    def greedy(self, ids: list[int], new: int) -> list[int] | None:
        return self.search(ids, 1, new)

    def beam(self, ids: list[int], width: int, new: int) -> list[int] | None:
        return self.search(ids, width, new)

    def tokens(self, text: str) -> list[int] | None:
        return None if self.tokenizer is None else self.tokenizer.encode(text).ids

    def source(self, ids: list[int]) -> list[str]:
        return [self.reads[number] for number in ids]

    def search(self, ids: list[int], width: int, new: int) -> list[int] | None:
        if self.kind == "TransformerEncoderSpec":
            return None
        if self.kind == "TransformerDecoderSpec":
            how = {"max_length": new, "min_length": 0, "sampling_topk": 1, "include_prompt_in_result": False}
            output = self.model.generate_batch([self.source(ids)], beam_size=width, length_penalty=0, **how)
            return output[0].sequences_ids[0]
        how = {"max_decoding_length": new, "min_decoding_length": 0, "max_input_length": 0}
        output = self.model.translate_batch([self.source(ids)], beam_size=width, length_penalty=0, **how)
        return [self.numbers[word] for word in output[0].hypotheses[0]]


def tensor(view: Any) -> Tensor:
    """The values of a StorageView."""
    return torch.from_numpy(np.array(view, dtype=np.float32))


def opened_tokenizer(folder: Path) -> Tokenizer | None:
    from tokenizers import Tokenizer

    if not (folder / TOKENIZER).exists():
        return None
    tokenizer = Tokenizer.from_file(str(folder / TOKENIZER))
    tokenizer.encode_special_tokens = reads_special_tokens_as_text(folder)
    return tokenizer
