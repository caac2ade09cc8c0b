"""A run of heedful's own, read back: its config, its labels, and its best weights with adapters merged.

A run may hold only what it learned beside another model: adapters (LoRA) and perhaps a head. Then its
config.json has an entry "lora", its from.json says which model it began from, with the SHA-256 of that
model's weights, and its model.safetensors is small. Loading puts the two together.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import asdict, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import nn

from ...errors import BadInput
from ...files import inside, naming, one_line, present, read_json, short
from ...models import family
from ...models.base.shells import DecoderClassifier
from ...models.base.skeleton import Unfilled, skeleton, with_room
from ...parts.lora import LAYERS, Lora, adapt, merge
from ..hf.chat_files import read_kept
from ..hf.problem import Problem
from ..hf.tokenizer import TARGET_TOKENIZER, TOKENIZER, read_alone
from ..hf.weights import SINGLE, check_tensor, find_weights, read_tensors
from ..loaded import SPECIAL, Load, Loaded, some, tokens_of
from ..run_folder import CONFIG, LABELS, RECIPE, check_written, is_run
from .pictures import preprocessing_in_run

if TYPE_CHECKING:
    from tokenizers import Tokenizer

VOUCHER = "model.json"
FROM = "from.json"
BORROWED = "borrowed"  # what config.json says of a vocabulary that came with another model
REWARD = "reward"  # the task of a model whose one score is no label's
ADAPTER, ADAPTER_WEIGHTS = "adapter_config.json", "adapter_model.safetensors"  # of PEFT
BINARY = "model.bin"  # of a CTranslate2 folder

is_one = is_run


def read(folder: Path, device: str | torch.device, dtype: torch.dtype, load: Load) -> Loaded:
    """The best model of a run; its names are ours already. What adapters have learned is merged.

    load: reads the base model of adapters, which may be of any format.
    """
    architecture, config = describe_run(folder)
    lora = read_lora(folder)
    with naming(folder / CONFIG):
        model = skeleton(architecture, config, labels_of_run(folder), has_head_bias(folder))
        model = model if lora is None else with_adapters(model, lora)
    with naming(folder):
        check_written(folder)
        check_hash(folder)
        stored, ours = find_weights(folder), dict(model.named_parameters())
        kept = ours.keys() if lora is None else {n for n in ours if n in stored or n.endswith((".A", ".B"))}
        different = sorted(stored.keys() ^ kept)
        if different:
            raise BadInput(f"{folder} and its {CONFIG} disagree about {some(different)}")
        for name, tensor in stored.items():
            check_tensor(tensor, tuple(ours[name].shape))
        separate = not getattr(config, "share_embeddings", True)
        tokenizer, target, rows = None, None, config.vocab if separate else tokens_of(config)
        if present(folder / TOKENIZER):
            tokenizer = read_alone(folder, TOKENIZER, rows)
        if separate or present(folder / TARGET_TOKENIZER):
            target = read_alone(folder, TARGET_TOKENIZER, config.target_vocab)
        chat = read_kept(folder)
        labels = labels_in_run(folder, labels_of_run(folder) or getattr(config, "labels", 0))
    base = None if lora is None else load(base_of(folder), device, dtype).model
    model = with_room(model.to(dtype), device)
    with torch.no_grad():
        weights = dict(model.named_parameters())
        for name, value in read_tensors(stored):
            weights[name].copy_(value)
    if base is not None:
        with naming(folder):
            put_base(model, base, set(stored))
        merge(model)
    special: dict[str, int] = {}
    for each in (tokenizer, target):
        if each is not None:
            each.encode_special_tokens = chat is None  # a text that says [EOS] is only a text
    if tokenizer is not None:
        names = {"pad": "[PAD]", "bos": "[BOS]", "eos": "[EOS]", "decoder_start": "[BOS]"}
        numbers = {name: tokenizer.token_to_id(token) for name, token in names.items()}
        special = {name: number for name, number in numbers.items() if number is not None}
        said = read_json(inside(folder, CONFIG))  # of a vocabulary that came with another model
        known = range(tokens_of(config) or 0)
        theirs = {name: said.get(f"{name}_token_id") for name in (*SPECIAL, "sep")}
        special |= {name: n for name, n in theirs.items() if type(n) is int and n in known}
    reward = isinstance(model, DecoderClassifier) and task_of(folder) == REWARD
    if reward and tokenizer is not None and "eos" in special:
        add_end(tokenizer, special["eos"])
    classifies = isinstance(model, DecoderClassifier) and not reward
    unlike = reads_otherwise(folder, tokenizer, special) if classifies else ""
    return Loaded(
        architecture,
        config,
        model.eval(),
        tokenizer,
        special,
        target,
        (REWARD,) if reward else labels,
        chat=chat,
        unlike=unlike,
        problem=Problem("regression") if reward else Problem(),
        preprocessing=preprocessing_in_run(folder, config),
    )


def reads_otherwise(folder: Path, tokenizer: Tokenizer | None, special: Mapping[str, int]) -> str:
    """How a run that classifies by a decoder reads a text, if no tokenizer can do the same; or ""."""
    recipe = read_json(inside(folder, RECIPE))
    data = recipe.get("data")
    if isinstance(data, dict) and data.get("both_orders"):
        return f"{folder} reads its pairs in both orders and judges the sum"
    if task_of(folder) == "choose":
        return f"{folder} judges several choices together"
    if tokenizer is None or (tokenizer.token_to_id("[BOS]") is None and "sep" not in special):
        return f"{folder} reads texts between tokens that its tokenizer does not put there"
    return ""


def task_of(folder: Path) -> Any:
    """What a run was trained for."""
    return read_json(inside(folder, RECIPE)).get("task")


def add_end(tokenizer: Tokenizer, end: int) -> None:
    """Let a tokenizer put the end token behind a text, or behind two: there a reward is read."""
    from tokenizers import processors

    mark = tokenizer.id_to_token(end)
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"$A {mark}", pair=f"$A $B:1 {mark}:1", special_tokens=[(mark, end)]
    )


def check_hash(folder: Path) -> None:
    """Check the weights against model.json's SHA-256 (there are two while the weights are being replaced)."""
    path = folder / VOUCHER
    if not present(path):
        return  # the weights alone can be taken elsewhere
    said = read_json(inside(folder, VOUCHER))
    entries = [entry for entry in (said, said.get("before")) if isinstance(entry, dict)]
    with open(inside(folder, SINGLE), "rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found not in [entry.get("sha256") for entry in entries]:
        fault = f"its SHA-256 is {found}, and {path} says {short(said.get('sha256'))}"
        raise BadInput(f"{folder / SINGLE} is damaged: {fault}; restore both from a copy")


# What config.json says.


def describe_run(folder: Path) -> tuple[str, Any]:
    """Architecture and config of a run."""
    with naming(folder / CONFIG):
        described = read_json(inside(folder, CONFIG))
        architecture, sizes = str(described.get("heedful")), described.get("config")
        kind = type(next(iter(family(architecture).PRESETS.values())))
        known = {f.name for f in fields(kind)}
        if not isinstance(sizes, dict) or sizes.keys() != known:
            raise BadInput(f"the config is not that of a {architecture}")
        return architecture, kind(
            **{name: tuple(v) if isinstance(v, list) else v for name, v in sizes.items()}
        )


def labels_of_run(folder: Path) -> int:
    """How many labels a decoder was taught to tell apart; 0 if it has no such head."""
    labels = read_json(inside(folder, CONFIG)).get("labels", 0)
    if type(labels) is not int or not 0 <= labels < 2**31:
        raise BadInput(f"labels must be a whole number, not {short(labels)}")
    return labels


def has_head_bias(folder: Path) -> bool:
    """Whether the head of a decoder with labels has a bias: a reward model's has none."""
    said = read_json(inside(folder, CONFIG)).get("head_bias", True)
    if type(said) is not bool:
        raise BadInput(f"head_bias must be true or false, not {short(said)}")
    return said


def labels_in_run(folder: Path, count: int) -> tuple[str, ...]:
    """The labels that a run was trained with, in the order of their ids; none if it has none."""
    if not present(folder / LABELS):
        return ()
    labels = tuple(read_json(inside(folder, LABELS), 1 << 24))
    if len(labels) != count:
        fault = f"{folder / LABELS} names {len(labels)} labels, and the model has {count}"
        raise BadInput(f"{fault}: restore the file of this run")
    return labels


# Adapters.


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
    """Adapters, their base model, and so on to a whole model; endless chains are refused."""
    chain = [folder]
    while (below := below_of(chain[-1])) is not None:
        if below.resolve() in [each.resolve() for each in chain]:
            said = FROM if is_run(chain[-1]) else ADAPTER
            raise BadInput(one_line(f"{folder} says that it began from itself: put back its {said}"))
        chain.append(below)
    return chain


def below_of(folder: Path) -> Path | None:
    """The base model of adapters, those of a run or of PEFT; None for a whole model."""
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
        fault = f"{folder} holds only the adapters of {base}, which is missing"
        raise BadInput(one_line(f"{fault}: restore it"))
    if weights_hash(base) != said.get("sha256"):
        fault = f"{base} does not have the weights that {folder} was trained with"
        raise BadInput(one_line(f"{fault}: restore them"))
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
