"""Tuning: which weights of a given model learn: all of them, a new head, or adapters beside its layers."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from torch import nn

from ..errors import BadInput
from ..files import one_line, replacing_folder
from ..interop.peft.write import write
from ..parts.lora import Lora, adapt
from .origin import Origin, taken
from .recipe.settings import Recipe, lora_layers


@dataclass(frozen=True)
class PartialTuning:
    """Everything that came along is held fast; what is new learns, and so do adapters, if there are any."""

    origin: Origin
    lora: Lora | None = None

    def arrange(self, model: nn.Module) -> None:
        """Hold fast what is not to learn, and put in what is."""
        came = taken(self.origin, model)
        for name, weight in model.named_parameters():
            weight.requires_grad_(name not in came)
        if self.lora is not None and not adapt(model, self.lora):
            layers = " and ".join(self.lora.layers)
            raise BadInput(
                one_line(
                    f"{self.origin.folder} is a {self.origin.architecture}, whose blocks have no layer "
                    f"{layers}"
                )
            )
        if not any(weight.requires_grad for weight in model.parameters()):
            raise BadInput(
                one_line(
                    f"all of {self.origin.folder} comes along, its head too, so train.tune=head leaves "
                    "nothing to learn: "
                    f"take lora or whole"
                )
            )


def tuning_of(recipe: Recipe, origin: Origin | None) -> PartialTuning | None:
    """What a recipe asks for; None where the whole model learns."""
    t = recipe.train
    if origin is None or t.tune == "whole":
        return None
    if t.tune == "head":
        return PartialTuning(origin)
    return PartialTuning(origin, Lora(t.lora_rank, t.lora_alpha, t.lora_dropout, lora_layers(t)))


ALONE = "adapter"  # the folder of a run that has its adapters alone


def write_adapters(run: Path) -> str:
    """Write a finished run's adapters in the format of Hugging Face's PEFT; returns a sentence about it."""
    folder = run / ALONE
    try:
        with replacing_folder(folder) as aside:
            write(run, aside)
    except BadInput as why:
        with suppress(OSError):
            folder.rmdir()
        return f"what was learned is not written as PEFT reads it: {why}"
    return f"{folder}: what was learned, alone, as PEFT reads it"


START_SENTENCES = {
    "whole": "start: {}, its sizes and its vocabulary{}",
    "head": "start: {}, its sizes and its vocabulary; its weights stay as they are, the head is new",
    "lora": (
        "start: {}, its sizes and its vocabulary; its weights stay as they are, LoRA of rank {} stands "
        "beside {}{}"
    ),
}


def describe_start(recipe: Recipe, head: bool) -> str:
    """A sentence about what is taken over, and what learns; head: whether it has a new one."""
    t, new = recipe.train, "; the head is new" if head else ""
    if t.tune == "lora":
        return START_SENTENCES["lora"].format(t.from_, t.lora_rank, " and ".join(lora_layers(t)), new)
    return START_SENTENCES[t.tune].format(t.from_, new)
