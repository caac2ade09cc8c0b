"""What transformers and sentence-transformers answer to what people give: texts, files, conversations."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import NotInstalled
from ...files import present, read_text
from ..packages import needed, quiet
from .image_processor import PREPROCESSOR

MODULES = "modules.json"
TRUSTED = "sentence_transformers."  # classes of the package itself


def classified(hf: Any, model: Any, tokenizer: Any, texts: list[str]) -> list[dict[str, float]] | None:
    """The values of all labels, by the pipeline."""
    if tokenizer is None or not hasattr(model.config, "num_labels"):
        return None
    with quiet():
        pipeline = hf.pipeline("text-classification", model=model, tokenizer=tokenizer, device="cpu")
        found = pipeline(texts, top_k=None)
    return [{each["label"]: each["score"] for each in row} for row in found]


def seen(hf: Any, model: Any, folder: Path, files: list[str]) -> list[dict[str, float]] | None:
    """The same of image files, by the pipeline with the folder's own preprocessing."""
    if not present(folder / PREPROCESSOR):
        return None
    with quiet():
        processor = hf.AutoImageProcessor.from_pretrained(folder, local_files_only=True, use_fast=False)
        pipeline = hf.pipeline("image-classification", model=model, image_processor=processor, device="cpu")
        found = pipeline(files, top_k=model.config.num_labels)
    return [{each["label"]: each["score"] for each in row} for row in found]


def prompt(tokenizer: Any, conversation: list[dict[str, Any]]) -> str | None:
    """A conversation as the tokenizer's chat template writes it down."""
    if tokenizer is None or not getattr(tokenizer, "chat_template", None):
        return None
    with quiet():
        return tokenizer.apply_chat_template(conversation, tokenize=False, add_generation_prompt=True)


def embedded(folder: Path, texts: list[str]) -> Tensor | None:
    """Vectors of texts, by sentence-transformers; None where it is missing, or would run other code."""
    if not present(folder / MODULES):
        return None
    listed: Any = json.loads(read_text(folder / MODULES))
    kinds = [str(each.get("type", "")) for each in (listed if isinstance(listed, list) else [])]
    if not kinds or not all(kind.startswith(TRUSTED) for kind in kinds):
        return None
    try:
        with quiet():
            library = needed("sentence_transformers", "hf")
            model = library.SentenceTransformer(str(folder), device="cpu", local_files_only=True)
            return torch.as_tensor(model.encode(texts, convert_to_numpy=True)).float()
    except NotInstalled:
        return None
