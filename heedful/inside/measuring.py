"""Running a model over samples: the loss of each text, with or without some heads, and its attention."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from ..decode.prompts import pad
from ..interop.loaded import Loaded
from ..models.base.shells import Decoder, DecoderClassifier, EncoderDecoder, WithHeads
from ..parts.places import Lengths, Source
from ..parts.view import View
from ..parts.watch import watch
from ..tasks.evaluation import by_length
from ..train.loss import NOTHING
from .ablation import HeadName, MeanOutputs, Means, attentions, without
from .look.layers import mask_of
from .samples import Sample, label_head, objective_of

ROWS, TOKENS = 16, 512  # of a batch of samples, with padding
AT_ONCE = 1024  # tokens of all copies of a batch, with padding: one piece of work
SLICE = 512  # predictions that are scored at once: a vocabulary is wide


class Measurer:
    """A model with its samples in batches of like length."""

    def __init__(self, loaded: Loaded, samples: Sequence[Sample]) -> None:
        self.loaded, self.samples = loaded, samples
        self.model: nn.Module = loaded.model
        self.device = next(self.model.parameters()).device
        self.objective = objective_of(self.model, samples)
        self.batches = [
            SampleBatch(self, ids) for ids in by_length([each.size for each in samples], ROWS, TOKENS)
        ]

    @property
    def pair(self) -> bool:
        return isinstance(self.model, EncoderDecoder)

    @property
    def counts(self) -> Tensor:
        """Predictions in each sample."""
        if self.objective == "label":
            return torch.ones(len(self.samples))
        if self.objective == "vectors":
            return torch.tensor([float(len(each.ids)) for each in self.samples])
        return torch.tensor([float(sum(a != NOTHING for a in each.answers)) for each in self.samples])


@dataclass(frozen=True, eq=False)
class SampleAttention:
    """The attention of one sample: by kind, weights [N, T, S] of all layers' heads, and allowed keys."""

    index: int
    sample: Sample
    kinds: dict[str, tuple[Tensor, Tensor]]


class SampleBatch:
    """Samples that are run together. `indices` are their numbers among all."""

    def __init__(self, measurer: Measurer, indices: list[int]) -> None:
        self.measurer, self.indices = measurer, indices
        self.samples = [measurer.samples[i] for i in indices]
        self.source: Source | None = None  # what the encoder says of a pair's sources
        self.plain_BTD: Tensor | None = None  # output vectors of the whole model

    @property
    def lengths(self) -> tuple[list[int], list[int]]:
        """Real tokens of each row: in the encoder of a pair, and elsewhere."""
        rows = [each.written if self.measurer.pair else each.ids for each in self.samples]
        return [len(each.ids) for each in self.samples], [len(row) for row in rows]

    @property
    def copies(self) -> int:
        """How many copies make one piece of work."""
        return max(1, AT_ONCE // (len(self.samples) * max(each.size for each in self.samples)))

    def forget(self) -> None:
        """Free what was kept for later copies."""
        self.source = self.plain_BTD = None

    # Forward

    def hidden(self, copies: int, read_once: bool = False) -> Tensor:
        """Output vectors [R * B, T, D] of all copies. read_once: they share the encoder's output."""
        model, device = self.measurer.model, self.measurer.device
        if self.samples[0].image_CHW is not None:
            assert isinstance(model, WithHeads)
            images = torch.stack([each.image_CHW for each in self.samples if each.image_CHW is not None])
            return model.encoder(images.to(device, next(model.parameters()).dtype).repeat(copies, 1, 1, 1))
        tokens_BT, lengths_B = pad([each.fed or each.ids for each in self.samples], device)
        if isinstance(model, EncoderDecoder):
            written_BT, _ = pad([each.written for each in self.samples], device)
            source = self.read(model, tokens_BT, lengths_B, copies, read_once)
            return model.decoder.hidden(written_BT.repeat(copies, 1), source=source)
        tokens_BT, places = tokens_BT.repeat(copies, 1), Lengths(lengths_B.repeat(copies))
        if isinstance(model, Decoder):
            return model.hidden(tokens_BT, places)
        if isinstance(model, DecoderClassifier):
            return model.decoder.hidden(tokens_BT, places)
        segments = [each.segments for each in self.samples]
        segments_BT = pad(segments, device)[0].repeat(copies, 1) if any(map(any, segments)) else None
        encoder = model.encoder if isinstance(model, WithHeads) else model
        return encoder(tokens_BT, places, segments_BT)

    def read(
        self, model: EncoderDecoder, tokens_BS: Tensor, lengths_B: Tensor, copies: int, once: bool
    ) -> Source:
        """What the encoder says of the sources."""
        places = Lengths(lengths_B.repeat(copies))
        if not once:
            return model.read(tokens_BS.repeat(copies, 1), places)
        if self.source is None:
            self.source = model.read(tokens_BS, Lengths(lengths_B))
        return Source(self.source.vectors_BSD.repeat(copies, 1, 1), places)

    # Losses

    @torch.no_grad()
    def collect(self, outputs: MeanOutputs) -> None:
        """Add the outputs of all heads to their means."""
        with outputs.collecting(*self.lengths):
            self.hidden(1)

    @torch.no_grad()
    def losses(self, removed: Sequence[Collection[HeadName]], means: Means | None = None) -> Tensor:
        """The summed loss [R, B] of each sample without each set of heads."""
        R = len(removed)
        read_once = not any(name.kind == "encoder" for names in removed for name in names)
        if self.measurer.objective == "vectors" and self.plain_BTD is None:
            self.plain_BTD = self.hidden(1)
        with without(self.measurer.model, removed, means):
            hidden_NTD = self.hidden(R, read_once)
        return self.summed(hidden_NTD, R).unflatten(0, (R, -1)).cpu()

    def summed(self, hidden_NTD: Tensor, copies: int) -> Tensor:
        """The loss of each row."""
        model, objective = self.measurer.model, self.measurer.objective
        if objective == "label":
            return self.label_losses(model, hidden_NTD, copies)
        if objective == "vectors":
            return self.changes(hidden_NTD, copies)
        length = hidden_NTD.shape[1]
        rows = [[*each.answers, *[NOTHING] * (length - len(each.answers))] for each in self.samples]
        answers_NT = torch.tensor(rows, device=hidden_NTD.device).repeat(copies, 1)
        row_K, place_K = (answers_NT != NOTHING).nonzero(as_tuple=True)
        hidden_KD, answers_K = hidden_NTD[row_K, place_K], answers_NT[row_K, place_K]
        losses = [
            F.cross_entropy(predictions(model, some_KD).float(), right_K, reduction="none")
            for some_KD, right_K in zip(hidden_KD.split(SLICE), answers_K.split(SLICE), strict=True)
        ]
        total_N = torch.zeros(len(hidden_NTD), dtype=torch.double, device=hidden_NTD.device)
        return total_N.index_add(0, row_K, torch.cat(losses).double())

    def label_losses(self, model: nn.Module, hidden_NTD: Tensor, copies: int) -> Tensor:
        labels_N = torch.tensor([each.label for each in self.samples], device=hidden_NTD.device).repeat(
            copies
        )
        if isinstance(model, DecoderClassifier):
            lengths = torch.tensor(self.lengths[0], device=hidden_NTD.device).repeat(copies)
            scores_NL = model.scores(hidden_NTD, lengths)
        else:
            assert isinstance(model, WithHeads)
            scores_NL = model.heads[label_head(model)](hidden_NTD, model.encoder.inputs)
        return F.cross_entropy(scores_NL.float(), labels_N, reduction="none").double()

    def changes(self, hidden_NTD: Tensor, copies: int) -> Tensor:
        """How far each row's vectors are from the whole model's, as parts of their length, summed."""
        assert self.plain_BTD is not None
        plain_NTD = self.plain_BTD.repeat(copies, 1, 1)
        off_NT = (hidden_NTD - plain_NTD).float().norm(dim=-1) / plain_NTD.float().norm(dim=-1)
        lengths_N = torch.tensor(self.lengths[0], device=off_NT.device).repeat(copies)
        real_NT = torch.arange(off_NT.shape[1], device=off_NT.device) < lengths_N[:, None]
        return (off_NT * real_NT).double().sum(-1)

    # Attention

    @torch.no_grad()
    def attention(self) -> Iterator[SampleAttention]:
        """The attention of each sample, without blanks."""
        places = attentions(self.measurer.model)
        with watch(self.measurer.model) as trace:
            self.unblanked().hidden(1)
        weights = trace.weights()
        for row, (i, sample) in enumerate(zip(self.indices, self.samples, strict=True)):
            seen = SampleAttention(i, sample, {})
            for kind in dict.fromkeys(kind for kind, _ in places):
                T = len(sample.written) if self.measurer.pair and kind != "encoder" else len(sample.ids)
                S = T if kind == "self" else len(sample.ids)
                found = {
                    layer: weights[path][row, :, :T, :S] for (k, layer), path in places.items() if k == kind
                }
                weights_NTS = torch.cat([each.float().cpu() for each in found.values()])
                sizes = {layer: len(each) for layer, each in found.items()}
                seen.kinds[kind] = weights_NTS, allowed_keys(self.measurer.model, kind, sizes, T, S)
            yield seen

    def unblanked(self) -> SampleBatch:
        """The same samples as they were before blanks were made."""
        plain = [
            Sample(
                each.text, each.ids, written=each.written, segments=each.segments, image_CHW=each.image_CHW
            )
            for each in self.samples
        ]
        found = SampleBatch(self.measurer, self.indices)
        found.samples = plain
        return found


def predictions(model: nn.Module, hidden_KD: Tensor) -> Tensor:
    """Scores [K, V] for tokens."""
    if isinstance(model, WithHeads):
        return model.heads["masked_lm"](hidden_KD, model.encoder.inputs)
    decoder = model.decoder if isinstance(model, EncoderDecoder) else model
    assert isinstance(decoder, Decoder)
    return decoder.head(hidden_KD[None], decoder.inputs.tokens)[0]


def allowed_keys(model: nn.Module, kind: str, sizes: dict[int, int], T: int, S: int) -> Tensor:
    """Which keys each query may attend to: [1, T, S] where all layers agree, else [N, T, S]."""
    masks = {layer: mask_of(model, kind, layer) for layer in sizes}
    tables = {mask: View(mask, T, S).allowed(1).expand(1, 1, T, S)[0].cpu() for mask in set(masks.values())}
    if len(tables) == 1:
        return next(iter(tables.values()))
    return torch.cat([tables[masks[layer]].expand(size, T, S) for layer, size in sizes.items()])
