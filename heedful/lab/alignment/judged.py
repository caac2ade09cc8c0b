"""What each stage's model says to the held-out instructions, and what a program thinks of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch

from ...data.report import Report
from ...files import present, read_json, write_json
from ...interop.formats import load
from ...models.base.shells import Decoder
from ...runs.folder import RECIPE
from ...runs.trainer import recipe_in
from ...tasks.instruct import ResponseEvaluator, room_of
from ...tasks.instruct_data import rows_of, template_of, tokenized
from ...tasks.origin import vocab_of
from ...tasks.rollouts import ResponseWriter, blank_round, exact_kl, lent
from ...train.loop import seed_for
from .stages import BY_NAME, SUPERVISED

SPLIT, SHOWN = "test", 300  # of the corpus; characters of a response that are kept
MOST = 1 << 15  # tokens that are scored at once
ROWS = 64
ALL = 500  # instructions of the split


@dataclass(frozen=True)
class JudgedStage:
    """The responses of a model to all instructions of a split, and what they are worth."""

    stage: str
    seed: int
    prompts: list[str]
    expected: list[str]
    responses: list[str]
    exact: list[float]
    reward: list[float]
    divergence: list[float]  # KL from the supervised model, of a sampled response, in nats


def judged_stage(folder: Path, name: str, seed: int, rows: int, device: torch.device) -> JudgedStage:
    """A stage's model judged, once: what was found is kept."""
    kept = folder / "judged" / f"{name.replace(' ', '-')}-{seed}-{rows}.json"
    if present(kept):
        return JudgedStage(**read_json(kept))
    found = judge_model(
        BY_NAME[name].path(folder, seed), BY_NAME[SUPERVISED].path(folder, seed), name, seed, rows, device
    )
    kept.parent.mkdir(exist_ok=True)
    write_json(kept, asdict(found))
    return found


def judge_model(
    run: Path, reference: Path, name: str, seed: int, rows: int, device: torch.device
) -> JudgedStage:
    """Greedy responses and their rewards; divergences, of sampled ones."""
    recipe = recipe_in(read_json(run / RECIPE))
    policy, start = decoder_in(run, device), decoder_in(reference, device)
    vocab, report = vocab_of(run, recipe), Report()
    asked = rows_of(recipe, SPLIT, report)
    held_out = list(tokenized(vocab, template_of(run), asked, report, ""))[:rows]
    room, longest = room_of(run, recipe), recipe.data.max_response_length
    with torch.no_grad():
        judged = ResponseEvaluator(vocab, held_out, room, longest, False)
        found = judged.write(policy, range(len(held_out)))
        writer = ResponseWriter(vocab.eos, vocab.pad, longest, MOST)
        seeds = [seed_for(seed, "alignment", number) for number in range(len(held_out))]
        written = writer.write(policy, judged.prompts, seeds)
        blank = blank_round(
            judged.prompts, [one.tokens for one in written], [0.0] * len(written), vocab.pad
        ).to(device)
        divergence = list(exact_kl(policy, lent(lambda device: start), blank, ROWS))
    scores = judged.scores(found)
    return JudgedStage(
        name,
        seed,
        [row.asked for row in judged.rows],
        [row.response for row in judged.rows],
        [said[:SHOWN] for said in found],
        scores["exact"].tolist(),
        scores["reward"].tolist(),
        divergence,
    )


def decoder_in(run: Path, device: torch.device) -> Decoder:
    model: Any = load(run, device).model
    assert isinstance(model, Decoder)
    return model.eval()
