"""A GGUF file as transformers opens it, with its own reader and nothing of heedful's."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ..binary import mapped
from ..foreign import NetworkInput, Outputs
from ..hf.reopen import OFFLINE
from ..packages import needed, quiet
from .file import read_contents
from .read import find
from .vocabulary import AS_TEXT, SPACES
from .write import FILE

THEIR_SPLITS = ("gpt-2", "llama-bpe")  # which transformers reads as llama.cpp does


def reopen(folder: Path, exact: bool = False) -> GGUFModel:
    """The file as Hugging Face transformers opens it: with its own reader, and nothing of ours."""
    return GGUFModel(folder)


class GGUFModel:
    """A GGUF file, by transformers."""

    def __init__(self, folder: Path) -> None:
        self.library = library = needed("transformers", "hf")
        needed("accelerate", "gguf")  # without which transformers reads no such file
        file = find(folder) or folder / FILE
        with mapped(file) as data:
            metadata = read_contents(data).metadata
        self.end = metadata.get("tokenizer.ggml.eos_token_id")
        self.begin = (
            [metadata["tokenizer.ggml.bos_token_id"]] if metadata.get("tokenizer.ggml.add_bos_token") else []
        )
        self.splits, self.vocab = metadata.get(AS_TEXT, False), len(metadata.get("tokenizer.ggml.tokens", ()))
        folder, named = file.parent, {"gguf_file": file.name, **OFFLINE}
        with quiet():
            self.model = library.AutoModelForCausalLM.from_pretrained(
                str(folder), dtype=torch.float32, **named
            ).eval()
            known = (
                metadata.get("tokenizer.ggml.pre") in THEIR_SPLITS
                if metadata["tokenizer.ggml.model"] == "gpt2"
                else metadata.get(SPACES) == "first"
            )
            self.tokenizer = library.AutoTokenizer.from_pretrained(str(folder), **named) if known else None

    @torch.no_grad()
    def outputs(self, rows: list[NetworkInput]) -> list[Outputs]:
        return [{"logits": self.model(input_ids=torch.tensor([row.ids])).logits[0].float()} for row in rows]

    def embedding(self) -> Tensor:
        """The rows of its token embedding."""
        return self.model.get_input_embeddings().weight.detach().float()

    def greedy(self, ids: list[int], new: int) -> list[int] | None:
        return self.written(ids, new, 1)

    def beam(self, ids: list[int], width: int, new: int) -> list[int] | None:
        return self.written(ids, new, width)

    def tokens(self, text: str) -> list[int] | None:
        """Token ids. transformers, unlike llama.cpp, ignores whether the file asks for a first token, and it
        knows only some ways to split texts; for others the answer is None."""
        if self.tokenizer is None:
            return None
        how = {"add_special_tokens": False, "split_special_tokens": self.splits}
        with quiet():  # it remarks on long texts
            found = self.tokenizer.encode(text, **how)
            if max(found, default=0) >= self.vocab:  # it makes up special tokens that the file has not
                found = self.tokenizer.encode(text, **how | {"split_special_tokens": True})
        return self.begin + found

    @torch.no_grad()
    def written(self, ids: list[int], new: int, width: int) -> list[int]:
        """By their `generate`, with every setting given, so that no default of theirs applies."""
        fed_1T = torch.tensor([ids])
        search = {"num_beams": width, "length_penalty": 0.0, "early_stopping": "never"} if width > 1 else {}
        with quiet():
            settings = self.library.GenerationConfig(
                max_new_tokens=new, do_sample=False, eos_token_id=self.end, pad_token_id=0, **search
            )
            self.model.generation_config = settings
            found = self.model.generate(
                fed_1T, attention_mask=torch.ones_like(fed_1T), generation_config=settings
            )
        tokens = found[0, len(ids) :].tolist()
        return tokens[: tokens.index(self.end)] if self.end in tokens else tokens
