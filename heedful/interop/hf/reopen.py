"""A Hugging Face folder as transformers opens it: offline, and without running code of the folder."""

from __future__ import annotations

import json
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...files import inside, present, read_json
from ..foreign import NetworkInput, Outputs, each_text, padded, real
from ..packages import needed, quiet
from ..run_folder import CONFIG
from .answers import classified, embedded, prompt, seen
from .token_settings import LIMIT, TOKENIZER_CONFIG
from .weights import find_weights

OFFLINE = {"local_files_only": True, "trust_remote_code": False}
MEANINGS = ("pad", "bos", "eos", "decoder_start")


def reopen(folder: Path, exact: bool = False) -> TransformersModel:
    """The model of a folder as transformers loads it."""
    return TransformersModel(folder)


@contextmanager
def only_data(folder: Path) -> Iterator[Path]:
    """The folder with only the files that heedful reads too, and without references to code, kernels or other
    libraries: transformers would follow them, whoever wrote them."""
    with tempfile.TemporaryDirectory() as aside:
        seen = Path(aside)
        for tensor in find_weights(folder).values():
            if not (seen / tensor.path.name).exists():
                (seen / tensor.path.name).symlink_to(tensor.path.absolute())
        for name in (*TOKENIZERS, *BESIDE):
            if present(folder / name):
                shutil.copyfile(inside(folder, name), seen / name)
        for name in (CONFIG, TOKENIZER_CONFIG):
            if present(folder / name):
                said = {
                    key: value
                    for key, value in read_json(inside(folder, name), LIMIT).items()
                    if key not in LEADS_OUT
                }
                if str(said.get("tokenizer_class", "")).removesuffix("Fast") not in CLASSES:
                    said.pop("tokenizer_class", None)
                (seen / name).write_text(json.dumps(said), encoding="utf-8")
        yield seen


class TransformersModel:
    """A model of the class that its config names, and its tokenizer."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.said = folder, read_json(inside(folder, CONFIG))
        self.hf = needed("transformers", "hf")
        with only_data(folder) as data, quiet():
            config = self.hf.AutoConfig.from_pretrained(data, **OFFLINE)
            config._attn_implementation = (
                "eager"  # a folder may name a kernel, which would be fetched and run
            )
            how = {"config": config, "dtype": torch.float32, "use_safetensors": True, **OFFLINE}
            self.model = self.kind().from_pretrained(data, **how).eval()
            self.tokenizer = self.read_tokenizer(data)
        self.settings: Any = getattr(self.model, "generation_config", None)  # those of the folder

    def kind(self) -> Any:
        """The Auto class for the class that the config names."""
        return getattr(
            self.hf, next((auto for end, auto in AUTOS.items() if self.named.endswith(end)), "AutoModel")
        )

    @property
    def named(self) -> str:
        """The class that the config names."""
        return str((self.said.get("architectures") or [""])[0])

    def read_tokenizer(self, folder: Path) -> Any:
        """Its tokenizer; None if the folder has none."""
        if not any((folder / name).is_file() for name in TOKENIZERS):
            return None
        return self.hf.AutoTokenizer.from_pretrained(folder, **OFFLINE)

    @property
    def special(self) -> dict[str, int]:
        """The special tokens that the folder itself names, without a class's defaults."""
        numbers = {name: self.said.get(f"{name}_token_id") for name in MEANINGS}
        return {name: number for name, number in numbers.items() if type(number) is int}

    # What is asked of it

    @torch.no_grad()
    def outputs(self, rows: list[NetworkInput]) -> list[Outputs]:
        """Of several texts at once, padded at their ends; one by one where the model knows no padding."""
        if len(rows) > 1 and "pad" not in self.special and not self.model.can_generate():
            return [self.outputs([row])[0] for row in rows]
        tokens_BT, lengths_B = padded([row.ids for row in rows], self.special.get("pad", 0))
        given: dict[str, Any] = {"input_ids": tokens_BT, "attention_mask": real(tokens_BT, lengths_B)}
        if rows[0].segments is not None:
            given["token_type_ids"], _ = padded([row.segments or [0] for row in rows])
        if self.model.config.is_encoder_decoder:
            given["decoder_input_ids"], lengths_B = padded([row.target or [0] for row in rows])
        if self.model.can_generate():
            given["use_cache"] = False
        return each_text(self.run(**given), lengths_B)

    @torch.no_grad()
    def pictures(self, images_BCHW: Tensor) -> list[Outputs]:
        found = self.run(pixel_values=images_BCHW)
        length = found["last_hidden_state"].shape[1]
        return each_text(found, torch.full((len(images_BCHW),), length))

    def run(self, **given: Tensor) -> dict[str, Tensor]:
        """Every output of the model, by name, and the last hidden states of the network below its heads."""
        below: dict[str, Any] = {}
        body = self.model.base_model
        hook = body.register_forward_hook(lambda _, args, out: below.update(out))
        try:
            out = below | dict(self.model(**given))
        finally:
            hook.remove()
        if self.model.config.is_encoder_decoder or self.model.can_generate():
            return {"logits": out["logits"]}
        found = {RENAMED.get(name, name): part for name, part in out.items() if name in COMPARED}
        if self.named.endswith("ForNextSentencePrediction"):
            found["seq_relationship_logits"] = found.pop("logits")
        return found

    def embedding(self) -> Tensor:
        """The rows of its token embedding."""
        return self.model.get_input_embeddings().weight.detach().float()

    def greedy(self, ids: list[int], new: int) -> list[int] | None:
        return self.write(ids, new)

    def beam(self, ids: list[int], width: int, new: int) -> list[int] | None:
        return self.write(ids, new, num_beams=width, length_penalty=0.0, early_stopping="never")

    def write(self, ids: list[int], new: int, **how: Any) -> list[int] | None:
        """By their `generate`, with every setting given, so that no default of theirs applies."""
        if not self.model.can_generate():
            return None
        special = self.special
        end, start = special.get("eos"), special.get("decoder_start", special.get("bos", 0))
        config = self.hf.GenerationConfig(
            max_new_tokens=new,
            do_sample=False,
            eos_token_id=end,
            pad_token_id=special.get("pad", 0),
            bos_token_id=special.get("bos"),
            decoder_start_token_id=start,
            use_cache=self.has_cache,
            **how,
        )
        self.model.generation_config = config
        ids_1T = torch.tensor([ids])
        with quiet(), torch.no_grad():
            out = self.model.generate(
                ids_1T, attention_mask=torch.ones_like(ids_1T), generation_config=config
            )
        begun = 1 if self.model.config.is_encoder_decoder else len(ids)
        words = out[0, begun:].tolist()
        return words[: words.index(end)] if end in words else words

    @property
    def has_cache(self) -> bool:
        """T5's has a place for each layer of the encoder, so a decoder of more layers cannot use it."""
        config = self.model.config
        return getattr(config, "num_decoder_layers", 0) <= getattr(config, "num_layers", 0)

    def tokens(self, text: str) -> list[int] | None:
        with quiet():  # it remarks on long texts
            return None if self.tokenizer is None else self.tokenizer(text).input_ids

    # What people call

    def generate(self, text: str, new: int) -> list[int] | None:
        """The tokens after a text, by the folder's own settings; the end is left out."""
        if self.tokenizer is None or not self.model.can_generate():
            return None
        with quiet(), torch.no_grad():
            given = self.tokenizer(text, return_tensors="pt", return_token_type_ids=False)
            how = {"max_new_tokens": new, "do_sample": False, "use_cache": self.has_cache}
            out = self.model.generate(**given, generation_config=self.settings, **how)
        begun = 1 if self.model.config.is_encoder_decoder else given.input_ids.shape[1]
        words, ends = out[0, begun:].tolist(), self.settings.eos_token_id
        ends = ends if isinstance(ends, list) else [ends]
        return words[: next((n for n, word in enumerate(words) if word in ends), len(words))]

    def classify(self, texts: list[str]) -> list[dict[str, float]] | None:
        return classified(self.hf, self.model, self.tokenizer, texts)

    def see(self, files: list[str]) -> list[dict[str, float]] | None:
        return seen(self.hf, self.model, self.folder, files)

    def chat(self, conversation: list[dict[str, Any]]) -> str | None:
        return prompt(self.tokenizer, conversation)

    def embed(self, texts: list[str]) -> Tensor | None:
        return embedded(self.folder, texts)


# How a class of theirs ends, and what loads it.
AUTOS = {
    "LMHeadModel": "AutoModelForCausalLM",
    "ForCausalLM": "AutoModelForCausalLM",
    "ForConditionalGeneration": "AutoModelForSeq2SeqLM",
    "MTModel": "AutoModelForSeq2SeqLM",
    "ForSequenceClassification": "AutoModelForSequenceClassification",
    "ForTokenClassification": "AutoModelForTokenClassification",
    "ForQuestionAnswering": "AutoModelForQuestionAnswering",
    "ForPreTraining": "AutoModelForPreTraining",
    "ForMaskedLM": "AutoModelForMaskedLM",
    "ForNextSentencePrediction": "AutoModelForNextSentencePrediction",
    "ForMultipleChoice": "AutoModelForMultipleChoice",
    "ForImageClassification": "AutoModelForImageClassification",
    "ForImageClassificationWithTeacher": "AutoModelForImageClassification",
}
TOKENIZERS = (
    "tokenizer.json", "vocab.json", "vocab.txt", "spiece.model", "spm.model", "source.spm", "tokenizer.model",
    "sentencepiece.bpe.model",
)  # fmt: skip
BESIDE = (
    "model.safetensors.index.json", "generation_config.json", "merges.txt", "target.spm", "target_vocab.json",
    "special_tokens_map.json", "added_tokens.json", "chat_template.jinja",
)  # fmt: skip
LEADS_OUT = (
    "auto_map",
    "quantization_config",
    "_attn_implementation",
    "attn_implementation",
    "custom_pipelines",
)
CLASSES = (
    "AlbertTokenizer", "BartTokenizer", "BertTokenizer", "DebertaV2Tokenizer", "DistilBertTokenizer",
    "ErnieTokenizer", "GPT2Tokenizer", "LlamaTokenizer", "MBartTokenizer", "MarianTokenizer",
    "OpenAIGPTTokenizer", "PegasusTokenizer", "PreTrainedTokenizer", "Qwen2Tokenizer", "RobertaTokenizer",
    "T5Tokenizer", "TokenizersBackend",
)  # fmt: skip
COMPARED = (
    "logits", "prediction_logits", "seq_relationship_logits", "sop_logits", "start_logits", "end_logits",
    "pooler_output", "last_hidden_state",
)  # fmt: skip
RENAMED = {"prediction_logits": "logits"}  # of models with two heads
