"""What the decoding tests share: tiny models that write, a step without a cache, every sequence there is, and
Hugging Face's `generate` beside ours."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from itertools import product

import torch
import transformers as hf
from torch import Tensor

import heedful
from heedful.decode.beam import beam_search
from heedful.decode.beam_fates import Fates, replay
from heedful.decode.beam_settings import BeamSettings
from heedful.decode.step import Step, step_of
from heedful.decode.streaming import Hypothesis
from heedful.models.base.shells import Decoder, EncoderDecoder
from heedful.parts.places import Lengths
from helpers import hf_zoo, tiny

BOS, EOS = 1, 2
DECODERS = ["gpt2", "llama"]
ENCODER_DECODERS = ["transformer", "t5"]
FAMILIES = [*DECODERS, *ENCODER_DECODERS]


def model_of(
    name: str, vocab: int = tiny.VOCAB, seed: int = 11, sharper: float = 1.0
) -> Decoder | EncoderDecoder:
    """A tiny model in fp64; a sharper one has larger scores, so that hypotheses lie further apart."""
    file, config = {**tiny.DECODERS, **tiny.ENCODER_DECODERS}[name]
    sizes = {"vocab": vocab, "target_vocab": vocab} if hasattr(config, "target_vocab") else {"vocab": vocab}
    model = tiny.build((file, replace(config, **sizes)), seed=seed)
    decoder = model.decoder if isinstance(model, EncoderDecoder) else model
    decoder.head.scale = decoder.head.scale * sharper
    return model


class Case:
    """A model and three unequal inputs for it, whatever it reads."""

    def __init__(self, name: str, vocab: int = tiny.VOCAB, seed: int = 11, sharper: float = 1.0) -> None:
        self.name, self.vocab = name, vocab
        self.model = model_of(name, vocab, seed, sharper)
        made = torch.Generator().manual_seed(seed)
        self.translates = isinstance(self.model, EncoderDecoder)
        self.source = torch.randint(vocab, (3, 6), generator=made) if self.translates else None
        self.source_lengths = torch.tensor([6, 2, 5]) if self.translates else None
        self.prompts = torch.randint(vocab, (3, 4), generator=made)
        self.lengths = torch.tensor([2, 4, 1])

    def step(self, **options: bool) -> Step:
        return step_of(self.model, self.source, self.source_lengths, **options)

    def forgetful(self) -> Step:
        return Forgetful(self.whole)

    @torch.no_grad()
    def whole(self, tokens_BT: Tensor, lengths_B: Tensor, rows_B: Tensor) -> Tensor:
        """Scores by a full forward, everything computed anew."""
        if self.source is None:
            return self.model(tokens_BT, Lengths(lengths_B))
        source_places = Lengths(self.source_lengths[rows_B])
        return self.model(self.source[rows_B], tokens_BT, source_places, Lengths(lengths_B))

    def alone(self, row: int, **options: bool) -> tuple[Step, Tensor]:
        """The same for one row only, unpadded."""
        source = None if self.source is None else self.source[row : row + 1, : self.source_lengths[row]]
        return step_of(self.model, source, **options), self.prompts[row : row + 1, : self.lengths[row]]

    def many(self, row: int, copies: int) -> tuple[Step, Tensor]:
        """One row, many times over."""
        step, prompt = self.alone(row)
        step.reorder(torch.zeros(copies, dtype=torch.long))
        return step, prompt.expand(copies, -1)

    def next(self, row: int, written: tuple[int, ...]) -> Tensor:
        """Log-probabilities after the row's prompt and some tokens, by a full forward."""
        tokens = torch.tensor([[*self.prompts[row, : self.lengths[row]].tolist(), *written]])
        at = torch.tensor([row])
        return self.whole(tokens, torch.tensor([tokens.shape[1]]), at)[0, -1].log_softmax(-1)


def heard_search(
    step: Step, prompts: Tensor, lengths: Tensor | None = None, **given
) -> list[list[Hypothesis]]:
    """Beam search with a listener: the fates that it hears must give exactly the result of the search."""
    fates, settings = Fates(), given.get("settings") or BeamSettings()
    found = beam_search(step, prompts, lengths, **given, heard=fates)
    ends = {given["eos"]} if isinstance(given["eos"], int | None) else set(given["eos"])
    again = [replay(fates.of_sentence(row), ends, settings.n_best) for row in range(len(prompts))]
    assert again == found
    return found


class Forgetful(Step):
    """A step without a cache: it remembers the tokens, and computes everything anew each time."""

    def __init__(self, whole: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        self.whole = whole
        self.texts: list[list[int]] | None = None
        self.rows: list[int] = []

    def __call__(self, tokens_BT: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        B, T = tokens_BT.shape
        if self.texts is None:
            self.texts, self.rows = [[] for _ in range(B)], list(range(B))
        before = [len(text) for text in self.texts]
        news = [T] * B if lengths_B is None else lengths_B.tolist()
        self.texts = [
            [*text, *row[:n]] for text, row, n in zip(self.texts, tokens_BT.tolist(), news, strict=True)
        ]
        longest = max(map(len, self.texts))
        table = torch.tensor([text + [0] * (longest - len(text)) for text in self.texts])
        scores = self.whole(table, torch.tensor([len(text) for text in self.texts]), torch.tensor(self.rows))
        at = (torch.tensor(before)[:, None] + torch.arange(T)).clamp(max=longest - 1)
        return scores.gather(1, at[..., None].expand(-1, -1, scores.shape[-1]))

    def reorder(self, rows: Tensor, siblings: bool = False) -> None:
        self.texts, self.rows = [self.texts[r] for r in rows], [self.rows[r] for r in rows]

    def rewind(self, lengths_B: Tensor) -> None:
        self.texts = [text[:n] for text, n in zip(self.texts, lengths_B.tolist(), strict=True)]


def every_sequence(vocab: int, longest: int, eos: int | None) -> Iterator[tuple[int, ...]]:
    """All that can be written: sequences that end with eos, or are cut off at the greatest length."""
    words = [w for w in range(vocab) if w != eos]
    for length in range(longest):
        if eos is not None:
            yield from ((*begun, eos) for begun in product(words, repeat=length))
    yield from product(words, repeat=longest)


def every_log_probability(
    case: Case, row: int, longest: int, eos: int | None
) -> dict[tuple[int, ...], list[float]]:
    """Every sequence and the log-probability of each of its tokens, by full forwards."""
    after: dict[tuple[int, ...], list[float]] = {}

    def at(begun: tuple[int, ...]) -> list[float]:
        if begun not in after:
            after[begun] = case.next(row, begun).tolist()
        return after[begun]

    return {
        sequence: [at(sequence[:i])[token] for i, token in enumerate(sequence)]
        for sequence in every_sequence(case.vocab, longest, eos)
    }


def chi_square(
    counts: Mapping[tuple[int, ...], int], expected: Mapping[tuple[int, ...], float]
) -> tuple[float, float]:
    """The statistic of counted sequences, and the value that chance exceeds once in 30,000 times.

    Sequences expected fewer than five times are taken together; one that cannot occur at all must not.
    """
    total = sum(counts.values())
    assert all(expected.get(sequence, 0) > 0 for sequence in counts), "what is impossible has happened"
    bins, rare = [], [0.0, 0.0]
    for sequence, probability in expected.items():
        pair = [counts.get(sequence, 0), probability * total]
        if pair[1] >= 5:
            bins.append(pair)
        else:
            rare = [a + b for a, b in zip(rare, pair, strict=True)]
    bins += [rare] if rare[1] > 0 else []
    k = len(bins) - 1
    limit = (
        k * (1 - 2 / (9 * k) + 4 * math.sqrt(2 / (9 * k))) ** 3
    )  # Wilson and Hilferty 1931, four deviations out
    return sum((seen - mean) ** 2 / mean for seen, mean in bins), limit


# Hugging Face.


class Pair:
    """A tiny random model of theirs, and the same as ours."""

    def __init__(self, family: str, seed: int, folder) -> None:
        case = hf_zoo.make(family, seed)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            hf_zoo.write(case, folder)
        self.theirs, self.ours = case.theirs, heedful.load(folder).model
        config = case.theirs.config
        self.translates = isinstance(self.ours, EncoderDecoder)
        self.vocab = getattr(config, "decoder_vocab_size", None) or config.vocab_size
        made = torch.Generator().manual_seed(seed)
        self.lengths = torch.tensor([5, 2, 4])
        top = config.vocab_size
        self.inputs = torch.randint(3, top, (3, 5), generator=made)

    def ends(self) -> list[int]:
        """Every fourth token: so that random models come to an end too."""
        return list(range(EOS, self.vocab, 4))

    def generate(self, even: bool, **options):
        """Theirs: (rows of new tokens cut after the end of sentence, scores of beams or None)."""
        ends = self.ends()
        lengths = torch.full((3,), 5) if even else self.lengths
        ids, mask = torch.zeros_like(self.inputs), torch.zeros_like(self.inputs)
        for row, n in enumerate(lengths.tolist()):
            at = slice(0, n) if self.translates else slice(5 - n, 5)  # they want prompts to end together
            ids[row, at], mask[row, at] = self.inputs[row, :n], 1
        config = hf.GenerationConfig(
            eos_token_id=ends, pad_token_id=0, bos_token_id=BOS, decoder_start_token_id=BOS, use_cache=False,
            return_dict_in_generate=True, output_scores=True, **options,
        )  # fmt: skip
        self.theirs.generation_config = config
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            out = self.theirs.generate(ids, attention_mask=mask, generation_config=config)
        begun = 1 if self.translates else 5
        rows = [until(row[begun:], ends) for row in out.sequences.tolist()]
        scores = out.sequences_scores.tolist() if options.get("num_beams", 1) > 1 else None
        return rows, scores

    def step(self, even: bool) -> tuple[Step, Tensor, Tensor | None]:
        lengths = None if even else self.lengths
        if self.translates:
            return step_of(self.ours, self.inputs, lengths), torch.full((3, 1), BOS), None
        return step_of(self.ours), self.inputs, lengths


def until(row: list[int], ends: list[int]) -> list[int]:
    return row[: next((i + 1 for i, token in enumerate(row) if token in ends), len(row))]


class Spy(Step):
    """Counts the rows and calls of a step."""

    def __init__(self, step: Step) -> None:
        self.step, self.rows = step, []

    def __call__(self, tokens_BT: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        self.rows.append(len(tokens_BT))
        return self.step(tokens_BT, lengths_B)

    def reorder(self, rows: Tensor, siblings: bool = False) -> None:
        self.step.reorder(rows)

    def rewind(self, lengths_B: Tensor) -> None:
        self.step.rewind(lengths_B)
