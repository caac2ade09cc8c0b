"""The mask: no output depends on a later word, and a whole text at once is the same as word by word."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from ...inside.look.drawing import Drawing
from ...models.base.shells import Decoder
from ...parts.masks import Mask, causal, full
from ...parts.positions.absolute import Sinusoidal
from ..claim import LEARNING, Arm, Claim, ClaimPart
from ..figures import DotPanel, MapPanel, figure
from ..results import Results, at
from ..rules import Direction, Equal, Exact, Reaches
from ..small import largest_difference, small_decoder
from ..toys import MODULUS, fibonacci
from ..training import RATES, fitted, last_loss, likelihood

VOCAB, WIDTH, HEADS, LAYERS, LENGTH = 13, 24, 3, 2, 11
STEPS = {"quick": 300, "standard": 500, "full": 1000}
PROMPT, TEXT = 4, 16  # words given, and words in all, when a model writes by itself
SEEDS = {"quick": 5, "standard": 5, "full": 10}


@dataclass(frozen=True)
class OneAhead(Mask):
    """A mask that is wrong by one: k <= q + 1."""

    sees_self = True

    def allows(self, b: Tensor, h: Tensor, q: Tensor, k: Tensor) -> Tensor:
        return k <= q + 1


MASKS = {"causal": causal(), "one too far": OneAhead(), "no mask": full()}


# Identities.


def influence(model: Decoder, tokens_BT: Tensor) -> Tensor:
    """[T, T]: the gradient of each output with respect to each input word's vector (rows: outputs)."""
    kept: list[Tensor] = []
    hook = model.inputs.tokens.register_forward_hook(lambda module, given, out: kept.append(out))
    scores_BTV = model(tokens_BT)
    hook.remove()
    rows = []
    for t in range(tokens_BT.shape[1]):
        (grad_BTD,) = torch.autograd.grad(scores_BTV[:, t].square().sum(), kept[0], retain_graph=True)
        rows.append(grad_BTD.norm(dim=-1).amax(0))
    return torch.stack(rows)


def prefixes(model: Decoder, tokens_BT: Tensor) -> Tensor:
    """The last output of every prefix, each read by itself."""
    lasts = [model(tokens_BT[:, : t + 1])[:, -1] for t in range(tokens_BT.shape[1])]
    return torch.stack(lasts, 1)


def cached(model: Decoder, tokens_BT: Tensor) -> Tensor:
    """Word by word, with the keys and values of earlier words kept."""
    cache = model.growing_cache()
    return torch.cat([model(tokens_BT[:, t : t + 1], cache=cache) for t in range(tokens_BT.shape[1])], 1)


def checked(mask: Mask) -> Arm:
    def arm(seed: int, size: str) -> dict[str, float]:
        model = small_decoder(VOCAB, WIDTH, HEADS, LAYERS, Sinusoidal(WIDTH), mask).double()
        tokens_BT = torch.randint(VOCAB, (2, LENGTH))
        with torch.no_grad():
            whole_BTV, changed = model(tokens_BT), 0.0
            for t in range(LENGTH - 1):
                other_BT = tokens_BT.clone()
                other_BT[:, t + 1 :] = (other_BT[:, t + 1 :] + 1) % VOCAB
                changed = max(changed, largest_difference(model(other_BT)[:, : t + 1], whole_BTV[:, : t + 1]))
            apart = largest_difference(prefixes(model, tokens_BT), whole_BTV)
        found = {"change of earlier outputs": changed, "difference from prefixes": apart}
        table_TT = influence(model, tokens_BT)
        found["gradient of later words"] = float(table_TT.triu(1).max())
        rows = {
            at(f"influence on {t}", s): float(table_TT[t, s]) for t in range(LENGTH) for s in range(LENGTH)
        }
        if mask != causal():
            return {**found, **rows}
        with torch.no_grad():
            found["difference from the cache"] = largest_difference(cached(model, tokens_BT), whole_BTV)
            single = model.float()
            found["difference from prefixes in float32"] = largest_difference(
                prefixes(single, tokens_BT), single(tokens_BT)
            )
        return {**found, **rows}

    return arm


CHECKS = {name: checked(mask) for name, mask in MASKS.items()}


# Learning.


def taught(mask: Mask) -> Arm:
    """Train on sums of the two words before, then write without help."""

    def arm(seed: int, size: str) -> dict[str, float]:
        fit = fitted(
            lambda: small_decoder(MODULUS, 64, 4, 2, Sinusoidal(64), mask),
            lambda step: fibonacci(seed, step, 32, TEXT),
            STEPS[size],
            RATES[size],
            likelihood,
        )
        assert isinstance(fit.model, Decoder)
        right = written_right(fit.model, seed)
        return {"loss": last_loss(fit.losses), "written right": right, **fit.numbers}

    return arm


@torch.no_grad()
def written_right(model: Decoder, seed: int, rows: int = 200) -> float:
    """The share of right words when the model reads its own words, as it does when it is used."""
    model.eval()
    truth_BT = fibonacci(seed, -1, rows, TEXT).tokens_BT
    text_BT = truth_BT[:, :PROMPT]
    for _ in range(TEXT - PROMPT):
        text_BT = torch.cat([text_BT, model(text_BT)[:, -1:].argmax(-1)], 1)
    return float((text_BT == truth_BT)[:, PROMPT:].double().mean())


TAUGHT = {f"trained, {name}": taught(mask) for name, mask in MASKS.items()}


def summary(results: Results) -> str:
    right, wrong = (results.mean(f"trained, {name}", "written right") for name in ("causal", "one too far"))
    apart = max(results.values("causal", "difference from prefixes"))
    return (
        "Yes, exactly: with the causal mask, changing later words changes no bit of an earlier output, and "
        f"one pass over a text equals word by word (to {apart:.0e}). A "
        f"mask that is wrong by one word trains to the same loss and then writes {wrong:.0%} of the words "
        f"right, against {right:.0%}: it learned to copy the answer."
    )


def draw(results: Results) -> Drawing:
    maps = []
    for name in MASKS:
        rows = [list(results.series(name, f"influence on {t}").values()) for t in range(LENGTH)]
        most = max(value[0] for row in rows for value in row)
        shown = [[value[0] / most for value in row] for row in rows]
        maps.append(MapPanel(name, "inputs across, outputs down", shown, cell=13))
    right = {name: results.values(f"trained, {name}", "written right") for name in MASKS}
    return figure(
        "Which output depends on which input, and what a model with a wrong mask learns",
        [
            *maps,
            DotPanel(
                "words written right, without help", "share of words", right, marks={"chance": 1 / MODULUS}
            ),
        ],
        ["Maps: size of the gradient, relative to the largest. Dots: seeds."],
    )


CLAIM = Claim(
    says="Mask out attention to future words: then training can be parallel and nothing leaks.",
    lecture="L1 L2 L3 L5",
    predicts=(
        "Changing words after t leaves outputs up to t equal in every bit, and their gradients are 0. One "
        "pass equals prefix by prefix, and the cache. With a broken mask the training loss is as low, and "
        "writing fails."
    ),
    parts=(
        ClaimPart(
            "no leak",
            "With the causal mask, later words change no bit, and one pass equals word by word.",
            CHECKS,
            Exact(
                ("causal",),
                {
                    "change of earlier outputs": 0,
                    "gradient of later words": 0,
                    "difference from prefixes": 1e-12,
                    "difference from the cache": 1e-12,
                    "difference from prefixes in float32": 1e-5,
                },
            ),
            SEEDS,
        ),
        ClaimPart(
            "wrong masks leak",
            "With a wrong mask, later words change earlier outputs.",
            CHECKS,
            Direction("one too far", "causal", "change of earlier outputs", 1e-3),
            SEEDS,
            control=True,
        ),
        ClaimPart(
            "same loss",
            "A mask that is wrong by one trains to the same loss.",
            TAUGHT,
            Equal("trained, one too far", "trained, causal", "loss", 0.05),
            LEARNING,
        ),
        ClaimPart(
            "useless",
            "A model with that mask then writes far worse.",
            TAUGHT,
            Direction("trained, causal", "trained, one too far", "written right", 0.5),
            LEARNING,
        ),
        ClaimPart(
            "learned",
            "With the causal mask the task is learned.",
            TAUGHT,
            Reaches("written right", 0.95, ("trained, causal",)),
            LEARNING,
            control=True,
        ),
    ),
    summary=summary,
    changes=(
        "A bidirectional encoder would change it: to fill in a blank, later words are wanted. "
        "A low training loss alone never shows that a mask is right."
    ),
    figure=draw,
    question="If a mask let every word see one word ahead, would you notice it in the training loss?",
    minutes={"quick": 0.5, "standard": 1.7, "full": 6.0},
)
