"""Painting: pictures for captions by the stages of text-to-image, the best of several first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from torch import Tensor

from ..data.images.prepare import normal
from ..data.vocab import Vocab, read_vocab
from ..decode.pictures import draw_codes
from ..errors import BadInput, command
from ..files import inside, naming, read_json
from ..interop.formats import load_run
from ..interop.hf.tokenizer import TOKENIZER
from ..models.clip import Clip
from ..models.dalle import Dalle
from ..models.dvae import DVAE
from ..tasks import STAGES
from ..tasks.captioned import padded
from ..tasks.recipe.settings import Recipe
from ..train.loop import seed_for
from .folder import RECIPE
from .stages import is_done, is_staged
from .trainer import recipe_in

AT_ONCE = 256  # pictures drawn together
TOP_K = 8  # of the codes of a cell, the most likely: what is rarer is mostly a blot


@dataclass(frozen=True)
class Drawn:
    """A picture that was drawn, and how well the ranker finds that it fits (a cosine)."""

    pixels_HWC: np.ndarray
    fit: float


class Painter:
    """The three models of a folder."""

    def __init__(self, folder: Path, device: torch.device) -> None:
        check_stages(folder)
        models = {}
        for stage, kind in zip(STAGES, (DVAE, Dalle, Clip), strict=True):
            models[stage] = load_run(folder / stage, device, torch.float32).model.eval()
            if not isinstance(models[stage], kind):
                raise BadInput(f"{folder / stage} is no {stage} of text-to-image: put its own back")
        self.codes: DVAE = models["codes"]  # type: ignore[assignment]
        self.decoder: Dalle = models["decoder"]  # type: ignore[assignment]
        self.ranker: Clip = models["ranker"]  # type: ignore[assignment]
        self.words, self.ranker_words = (read_vocab(folder / stage / TOKENIZER) for stage in STAGES[1:])
        self.recipe, self.device = read_recipe(folder / "ranker"), device

    def unknown(self, caption: str) -> list[str]:
        """Words of a caption that the decoder has never seen."""
        return [word for word in caption.split() if self.words.unk in self.words.encode_batch([word])[0]]

    @torch.no_grad()
    def draw(
        self,
        captions: Sequence[str],
        candidates: int = 16,
        temperature: float = 1.0,
        top_k: int = TOP_K,
        seed: int = 0,
        track: Callable[[list[int]], Sequence[int]] = lambda starts: starts,
    ) -> list[list[Drawn]]:
        """So many pictures of each caption, in the order in which they were drawn. top_k: 0 for all codes.

        Which ones follows from the seed, the caption's place and the picture's, however many are drawn
        together.
        """
        asked = [
            (caption, seed_for(seed, "picture", row, n))
            for row, caption in enumerate(captions)
            for n in range(candidates)
        ]
        drawn: list[Drawn] = []
        for start in track(list(range(0, len(asked), AT_ONCE))):
            texts, seeds = zip(*asked[start : start + AT_ONCE], strict=True)
            words_BL, lengths_B = self.tokens(self.words, texts, self.decoder.config.text_length)
            codes_Bhw = draw_codes(self.decoder, words_BL, lengths_B, seeds, temperature, top_k)
            pixels_BHWC = (self.codes.decode(codes_Bhw) * 255).round().to(torch.uint8).permute(0, 2, 3, 1)
            fits = self.fit(texts, pixels_BHWC).tolist()
            rows = pixels_BHWC.cpu().numpy()
            drawn += [Drawn(pixels, fit) for pixels, fit in zip(rows, fits, strict=True)]
        return [drawn[i : i + candidates] for i in range(0, len(drawn), candidates)]

    def fit(self, captions: Sequence[str], pixels_BHWC: Tensor) -> Tensor:
        """The ranker's cosine of each caption with its picture [B]."""
        words_BL, lengths_B = self.tokens(self.ranker_words, captions, self.recipe.data.max_length)
        return self.ranker.fit(words_BL, lengths_B, normal(pixels_BHWC, self.recipe.data))

    def tokens(self, vocab: Vocab, captions: Sequence[str], longest: int) -> tuple[Tensor, Tensor]:
        words_BL, lengths_B = padded(vocab.encode_batch(list(captions)), longest)
        return words_BL.to(self.device), lengths_B.to(self.device)


def check_stages(folder: Path) -> None:
    """Refuse a folder that is no finished run of text-to-image."""
    if not folder.is_dir():
        raise BadInput(
            f"{folder} is {'a file' if folder.exists() else 'not there'}: give the folder of a run of "
            "text-to-image"
        )
    if not is_staged(folder):
        if is_staged(folder.parent):
            raise BadInput(f"{folder} is no run of text-to-image but a stage of one: give {folder.parent}")
        raise BadInput(
            f"{folder} is no run of text-to-image: train one with `{command('train', 'text-to-image')}`"
        )
    for stage in STAGES:
        if not is_done(folder / stage):
            raise BadInput(
                f"the stage {stage} of {folder} is not done: go on with "
                f"`{command('train', '--resume', folder)}`"
            )


def read_recipe(folder: Path) -> Recipe:
    """The recipe of a run."""
    with naming(folder / RECIPE):
        return recipe_in(read_json(inside(folder, RECIPE)))


# How good they are


@dataclass(frozen=True)
class Verdict:
    """What of the pictures of some captions is right, by picture: [captions, candidates] of 0 and 1."""

    things: np.ndarray
    relation: np.ndarray | None  # of the captions that have one; None of pictures by class
    fits: np.ndarray


@dataclass(frozen=True)
class Share:
    """A share of captions, one picture drawn of each and the best of several, with what choosing gains."""

    one: float
    best: float
    gain: float
    interval: tuple[float, float]  # of the gain, 95 %
    captions: int


def share_of(right_NC: np.ndarray, fits_NC: np.ndarray) -> Share:
    """One picture: the mean over all that were drawn; the best: the one that the ranker finds to fit best.

    The interval is that of a mean of paired differences, caption by caption.
    """
    chosen_N = np.take_along_axis(right_NC, fits_NC.argmax(1)[:, None], 1)[:, 0].astype(float)
    gains_N = chosen_N - right_NC.mean(1)
    half = 1.96 * gains_N.std(ddof=1) / np.sqrt(len(gains_N)) if len(gains_N) > 1 else 1.0
    gain = float(gains_N.mean())
    return Share(
        float(right_NC.mean()),
        float(chosen_N.mean()),
        gain,
        (gain - float(half), gain + float(half)),
        len(gains_N),
    )
