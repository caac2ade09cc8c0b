"""Runs that hold only what they learned beside another model: adapters (LoRA) and perhaps a head.

The config.json of such a run has an entry "lora"; its from.json says which model it began from, with the
SHA-256 of that model's weights; its model.safetensors is small. Loading puts the two together.
"""

from __future__ import annotations

import hashlib
import math
from dataclasses import asdict, fields
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ...errors import BadInput
from ...files import inside, naming, one_line, present, read_json, short
from ...models.base.shells import DecoderClassifier
from ...models.base.skeleton import Unfilled
from ...parts.lora import LAYERS, Lora, adapt
from ..hf.weights import find_weights
from ..run_folder import CONFIG, is_run

FROM = "from.json"
BORROWED = "borrowed"  # what config.json says of a vocabulary that came with another model
ADAPTER, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"  # of PEFT
BINARY = "model.bin"  # of a CTranslate2 folder


def read_lora(folder: Path) -> Lora | None:
    """The settings of a run's adapters; None if it has none."""
    with naming(folder / CONFIG):
        said = read_json(inside(folder, CONFIG)).get("lora")
        return None if said is None else lora_of(said)


def lora_of(said: Any) -> Lora:
    """Settings of adapters, checked."""
    if not isinstance(said, dict) or said.keys() != {f.name for f in fields(Lora)}:
        raise BadInput(f"lora is {short(said)}, which does not describe adapters")
    layers = said["layers"]
    if not isinstance(layers, list) or not layers or not set(map(str, layers)) <= set(LAYERS):
        raise BadInput(f"lora has the layers {short(layers)}; there are {', '.join(LAYERS)}")
    rank, alpha, dropout = said["rank"], said["alpha"], said["dropout"]
    numbers = type(rank) is int and 1 <= rank < 1 << 20
    finite = all(type(n) in (int, float) and 0 <= n < math.inf for n in (alpha, dropout))
    if not numbers or not finite or dropout >= 1:
        raise BadInput(f"lora is {short(said)}, which does not describe adapters")
    return Lora(rank, float(alpha), float(dropout), tuple(layers))


def described(lora: Lora) -> dict[str, Any]:
    """What config.json says of adapters."""
    return {**asdict(lora), "layers": list(lora.layers)}


def base_of(folder: Path) -> Path:
    """The model that a run of adapters began from, if it is still the same. It may be such a run itself."""
    return chain_of(folder)[1]


def chain_of(folder: Path) -> list[Path]:
    """Adapters, the model that they stand beside, and so on to a whole model; endless chains are refused."""
    chain = [folder]
    while (below := below_of(chain[-1])) is not None:
        if below.resolve() in [each.resolve() for each in chain]:
            said = FROM if is_run(chain[-1]) else ADAPTER
            raise BadInput(one_line(f"{folder} says that it began from itself: put back its {said}"))
        chain.append(below)
    return chain


def below_of(folder: Path) -> Path | None:
    """What adapters stand beside, those of a run or of PEFT; None of a whole model."""
    if is_run(folder):
        return None if read_lora(folder) is None else next_base(folder)
    return peft_base(folder) if is_peft(folder) else None


def is_peft(folder: Path) -> bool:
    """Whether a folder holds adapters of PEFT and no model."""
    return present(folder / ADAPTER) and not present(folder / CONFIG)


def peft_base(folder: Path) -> Path:
    """Where PEFT's adapters say that their model lies."""
    with naming(folder / ADAPTER):
        return Path(str(read_json(inside(folder, ADAPTER)).get("base_model_name_or_path")))


def next_base(folder: Path) -> Path:
    with naming(folder / FROM):
        said = read_json(inside(folder, FROM))
        base = Path(str(said.get("folder")))
    if not base.exists():
        told = f"{folder} holds only what it learned beside {base}, which is not there any more"
        raise BadInput(one_line(f"{told}: put it back"))
    if weights_hash(base) != said.get("sha256"):
        told = f"{base} has other weights than when {folder} was trained beside it"
        raise BadInput(one_line(f"{told}: put back the old ones"))
    return base


def with_adapters(model: nn.Module, lora: Lora) -> nn.Module:
    """Put adapters without values beside the layers of a model without values."""
    with torch.device("meta"), Unfilled():
        adapt(model, lora)
    return model


def put_base(model: nn.Module, base: nn.Module, learned: set[str]) -> None:
    """Every weight that was not learned, from the model that it came with."""
    base = base.decoder if isinstance(base, DecoderClassifier) else base
    prefix = "decoder." if isinstance(model, DecoderClassifier) else ""
    found = dict(base.named_parameters())
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name not in learned:
                old = found.get(name.removeprefix(prefix))
                if old is None or old.shape != weight.shape:
                    raise BadInput(f"it has not learned {name}, and the model that it began from has it not")
                weight.copy_(old)


def weights_hash(folder: Path) -> str:
    """SHA-256 of the weights' file; of several, of their hashes in the order of their names."""
    paths = sorted(weight_files(folder))
    hashes = []
    for path in paths:
        with open(path, "rb") as file:
            hashes.append(hashlib.file_digest(file, "sha256").hexdigest())
    return hashes[0] if len(hashes) == 1 else hashlib.sha256("".join(hashes).encode()).hexdigest()


def weight_files(folder: Path) -> set[Path]:
    """The files that hold the weights of a model: safetensors, a .gguf file, or CTranslate2's."""
    if folder.is_file():
        return {folder}
    if is_peft(folder):
        return {inside(folder, ADAPTER_WEIGHTS)}
    found = sorted(folder.glob("*.gguf"))
    for other in [folder / BINARY] if present(folder / BINARY) else found[:1]:
        if not any(folder.glob("*.safetensors*")):
            return {inside(folder, other.name)}
    return {tensor.path for tensor in find_weights(folder).values()}
