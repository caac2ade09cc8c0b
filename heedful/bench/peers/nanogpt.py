"""nanoGPT: model.py of a checkout of github.com/karpathy/nanoGPT. Training only: it decodes without a cache.

GPT-2 has biases and nanoGPT's own bench leaves them out, so both are measured. Model and optimizer are
nanoGPT's, the vocabulary is filled up as its train.py does, and with biases it starts from heedful's
weights.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from ...errors import BadInput
from .. import units
from ..work import FULL, TrainGPT2, Work
from . import Place, Variant, in_half, load_module

CHECKOUT = "github.com/karpathy/nanoGPT"
OWN = "GELU by erf; AdamW fused on a GPU only; vocabulary filled up"
TRANSPOSED = ("attn.c_attn.weight", "attn.c_proj.weight", "mlp.c_fc.weight", "mlp.c_proj.weight")


def variants(work: Work) -> list[Variant]:
    if not isinstance(work, TrainGPT2) or work.attention != FULL:
        return []
    found = [
        Variant(
            f"{how}, compiled" if compiled else how,
            compiled=compiled,
            same_weights=how == "biases",
            differs=OWN if how == "biases" else f"no biases; {OWN}",
        )
        for how in ("biases", "no biases")
        for compiled in (False, True)
    ]
    return [*found, in_half(found[-1])]


def build(work: Work, variant: Variant, place: Place) -> Callable[[], Any]:
    assert isinstance(work, TrainGPT2)
    nanogpt: Any = load_module(model_file(place, "nanogpt"), "nanogpt_model")
    torch.manual_seed(units.SEED)
    bias = not variant.name.startswith("no biases")
    config = nanogpt.GPTConfig(
        block_size=work.length,
        vocab_size=units.padded(work.vocab),
        n_layer=work.layers,
        n_head=work.heads,
        n_embd=work.width,
        dropout=0.0,
        bias=bias,
    )
    model = nanogpt.GPT(config).to(place.device)
    if bias and place.weights is not None:
        fill(model, Path(place.weights))
    optimizer = model.configure_optimizers(0.1, units.RATE, (0.9, 0.95), place.device)
    tokens_BT = units.windows(work, place)
    inputs_BT, answers_BT = tokens_BT[:, :-1].contiguous(), tokens_BT[:, 1:].contiguous()
    score = torch.compile(model) if variant.compiled else model

    def loss_of(inputs_BT: Any, answers_BT: Any) -> Any:
        return score(inputs_BT, answers_BT)[1]

    return units.training(model, loss_of, [inputs_BT, answers_BT], False, place, optimizer)


def model_file(place: Place, name: str) -> Path:
    path = Path(place.path or "") / "model.py"
    if not path.is_file():
        raise BadInput(f"--peer {name}=PATH: the folder holds no model.py, and a checkout does")
    return path


def fill(model: Any, folder: Path) -> None:
    """heedful's weights, from Hugging Face's layout: matrices lie the other way there."""
    from safetensors.torch import load_file

    ours = model.state_dict()
    with torch.no_grad():
        for name, weight in load_file(folder / "model.safetensors").items():
            turned = weight.T if name.endswith(TRANSPOSED) else weight
            ours[name][: len(turned)].copy_(turned)
        ours["transformer.wte.weight"][model_rows(folder) :] = 0


def model_rows(folder: Path) -> int:
    """Tokens of the vocabulary before it was filled up."""
    from safetensors import safe_open

    with safe_open(folder / "model.safetensors", "pt") as file:
        return file.get_slice("transformer.wte.weight").get_shape()[0]
