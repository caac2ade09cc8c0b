"""Claims that can be tried on a model of one's own: what does this checkpoint do?

`try_claim(find_claim("scaling"), load("runs/demo"))` asks a trained model what the claim asks of small ones.
Every file here belongs to the claim of the same name. Nothing in claims/ imports from here, so a record does
not depend on this folder.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from importlib import import_module
from typing import TYPE_CHECKING

from ...errors import BadInput
from .report import OwnModelReport

if TYPE_CHECKING:
    from ...use.model import Model
    from ..claim import Claim

CAN_TRY = ("extrapolation", "offsets", "mask", "scaling", "lookup", "alignment")
READS_TEXTS = ("extrapolation", "scaling", "lookup")  # which take a file of texts


def try_claim(claim: Claim, model: Model, data: str | None = None) -> OwnModelReport:
    """What a claim comes to on this model. data: a file of texts, one a line, for claims that read texts.

    A claim that does not apply to the model is refused with the reason.
    """
    check_can_try([claim])
    module = import_module(f"{__package__}.{claim.name}")
    found: OwnModelReport = module.try_on(model, data)
    return replace(found, letter=claim.letter, says=claim.says, lecture=claim.lecture)


def check_can_try(claims: Sequence[Claim]) -> None:
    """Refuse claims that train models of their own, and name those that can be tried."""
    others = [claim.name for claim in claims if claim.name not in CAN_TRY]
    if others:
        raise BadInput(
            f"{others[0]} trains small models of its own and cannot be tried on yours: leave out --on, or "
            f"take one of {', '.join(CAN_TRY)}"
        )
