"""The discrete VAE (Ramesh et al. 2021, DALL-E's first stage): pictures to a small grid of codes, and back.

The picture is cut into cells as a Vision Transformer cuts it into patches, and the encoder gives every cell
scores for K codes. In training a cell is a mixture of codes, drawn with Gumbel noise, so that gradients pass;
it gets sharper as the temperature falls. After training a cell is its most likely code. What is maximized is

    E_{z ~ q(z|x)} [ log p(x | z) ] - beta KL( q(z|x) || uniform )
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Annotated

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .base.config import Config
from .base.fields import SIZE, Channels, Codes, Dropout, PatchSize, Width

EPS = 0.1  # pixels are kept so far from 0 and 1, where the logit is not finite
# No scale is less: flat colors would otherwise become infinitely likely, and nothing else would be learned.
LEAST_LOG_SCALE = math.log(0.3)
ROUNDS = 15  # of k-means
AT_ONCE = 1 << 23  # distances of k-means that are computed together


@dataclass(frozen=True)
class DVAEConfig(Config):
    channels: Channels = 3
    codes: Codes = 8192
    patch_size: PatchSize = 8
    layers: Annotated[int, SIZE, "residual blocks of the encoder, and of the decoder"] = 2
    width: Width = 256
    dropout: Dropout = 0.0


PRESETS = {"dvae": DVAEConfig()}


# The likelihood of a pixel: Laplace over its logit.


def inside(x: Tensor, eps: float = EPS) -> Tensor:
    """Pixels from [0, 1] to [eps, 1 - eps]."""
    return (1 - 2 * eps) * x + eps


def outside(y: Tensor, eps: float = EPS) -> Tensor:
    """The way back; what was beyond stays at 0 or 1."""
    return ((y - eps) / (1 - 2 * eps)).clamp(0, 1)


def logit_laplace(y: Tensor, center: Tensor, log_scale: Tensor) -> Tensor:
    """log f(y | mu, b) = -|logit(y) - mu| / b - log(2 b y (1 - y)), a density over y in (0, 1)."""
    distance = (torch.logit(y) - center).abs() * torch.exp(-log_scale)
    return -distance - math.log(2) - log_scale - torch.log(y) - torch.log1p(-y)


# The relaxation: a mixture of codes instead of one.


def gumbel_softmax(scores: Tensor, temperature: Tensor | float, noise: Tensor) -> Tensor:
    """softmax((scores + noise) / temperature) over the second axis; one-hot as the temperature falls.

    (Jang et al. 2017.) With Gumbel noise, each code is the largest with the probability that the softmax
    gives it.
    """
    return ((scores + noise) / temperature).softmax(1)


def gumbel_noise(scores: Tensor) -> Tensor:
    """-log(-log u), u uniform, in the shape of scores."""
    tiny = torch.finfo(
        scores.dtype
    ).tiny  # u may be 0; drawn as exponential numbers, it would take four times as long on a CPU
    return -torch.rand_like(scores).clamp_(min=tiny).log_().neg_().log_()


def divergence(scores_BKhw: Tensor) -> Tensor:
    """KL(q || uniform over K codes) of each cell [B, h, w]: log K less the entropy."""
    log_q = scores_BKhw.log_softmax(1)
    return (log_q.exp() * log_q).sum(1) + math.log(scores_BKhw.shape[1])


class Residual(nn.Module):
    """x + W2 relu(W1 relu(x)): a look at the neighbors, then every cell for itself."""

    def __init__(self, width: int, dropout: float) -> None:
        super().__init__()
        self.near = nn.Conv2d(width, width, 3, padding=1)
        self.own = nn.Conv2d(width, width, 1)
        self.dropout = nn.Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.own(self.dropout(F.relu(self.near(F.relu(x)))))


class DVAE(nn.Module):
    """Pictures [B, C, H, W] of numbers from 0 to 1 to codes [B, h, w], and codes to pictures."""

    def __init__(self, config: DVAEConfig) -> None:
        super().__init__()
        c = config
        self.config = c
        blocks = [[Residual(c.width, c.dropout) for _ in range(c.layers)] for _ in range(2)]
        # The paper's ends: 1 x 1 convolutions to the scores of codes, and from the codes. It comes to cells
        # by halving the sides and back by doubling them; whole patches need half the time, and codes can
        # begin as patches.
        self.encoder = nn.Sequential(
            nn.Conv2d(c.channels, c.width, c.patch_size, stride=c.patch_size),
            *blocks[0],
            nn.Conv2d(c.width, c.codes, 1),
        )
        self.decoder = nn.Sequential(
            nn.Conv2d(c.codes, c.width, 1),
            *blocks[1],
            nn.Conv2d(c.width, 2 * c.channels * c.patch_size**2, 1),
            nn.PixelShuffle(c.patch_size),
        )

    def scores(self, pixels_BCHW: Tensor) -> Tensor:
        """[B, K, h, w]: of every code for every cell, before the softmax.

        In whole precision: how much nearer one code is than another is little beside how far away both are.
        """
        x_BCHW = pixels_BCHW.to(self.encoder[0].weight.dtype)  # type: ignore[arg-type]
        with torch.autocast(x_BCHW.device.type, enabled=False):
            return self.encoder(torch.logit(inside(x_BCHW)))

    def likelihood(self, pixels_BCHW: Tensor, mixture_BKhw: Tensor) -> Tensor:
        """log p(x | z) [B], summed over the picture."""
        center, log_scale = self.decoder(mixture_BKhw).float().chunk(2, dim=1)
        log_scale = torch.logaddexp(log_scale, log_scale.new_full((), LEAST_LOG_SCALE))
        return logit_laplace(inside(pixels_BCHW.float()), center, log_scale).flatten(1).sum(1)

    def forward(self, pixels_BCHW: Tensor, temperature: Tensor | float) -> tuple[Tensor, Tensor]:
        """(log p(x | z) for one drawn z, KL(q || uniform)), [B] each."""
        scores_BKhw = self.scores(pixels_BCHW).float()
        mixture_BKhw = gumbel_softmax(scores_BKhw, temperature, gumbel_noise(scores_BKhw))
        return self.likelihood(pixels_BCHW, mixture_BKhw), divergence(scores_BKhw).flatten(1).sum(1)

    def encode(self, pixels_BCHW: Tensor) -> Tensor:
        """The most likely code of each cell [B, h, w]: no noise."""
        return self.scores(pixels_BCHW).argmax(1)

    def decode(self, codes_Bhw: Tensor) -> Tensor:
        """Pictures [B, C, H, W] of codes: the middle of each pixel's distribution."""
        one_hot_BKhw = self.one_hot(codes_Bhw)
        center, _ = self.decoder(one_hot_BKhw).float().chunk(2, dim=1)
        return outside(torch.sigmoid(center))

    def one_hot(self, codes_Bhw: Tensor) -> Tensor:
        """Codes as mixtures [B, K, h, w] of one."""
        dtype = next(self.decoder[0].parameters()).dtype
        return F.one_hot(codes_Bhw, self.config.codes).movedim(-1, 1).to(dtype)


def build(config: DVAEConfig) -> DVAE:
    """The encoder and the decoder, with fresh weights: torch's own for convolutions, N(0, 1) for the
    vectors of codes, and residual blocks that do nothing yet."""
    model = DVAE(config)
    nn.init.normal_(model.decoder[0].weight)  # type: ignore[arg-type]
    for block in model.modules():
        if isinstance(block, Residual):
            nn.init.zeros_(block.own.weight)
            nn.init.zeros_(block.own.bias)  # type: ignore[arg-type]
    return model


LEAST_SPREAD = 0.05  # of patches around their code, in logits: drawn pictures may have none
PATCHES = 40_000  # that are looked at to begin with


@torch.no_grad()
def begin_with(model: DVAE, pixels_BCHW: Tensor, seed: int) -> None:
    """Let each code begin as a patch that pictures are made of, where gradients would take long to find it.

    Codes are the centers c of patches (k-means); as in a mixture of Gaussians, the score of a code for a
    patch x is -|x - c|^2 / (2 spread^2), of which |x|^2 is the same for all. Blocks that do nothing yet leave
    both ends linear.
    """
    c, generator = model.config, torch.Generator().manual_seed(seed)
    patches_BXN = F.unfold(torch.logit(inside(pixels_BCHW)), c.patch_size, stride=c.patch_size)
    patches_NX = patches_BXN.transpose(1, 2).flatten(0, 1).unique(dim=0)
    patches_NX = patches_NX[torch.randperm(len(patches_NX), generator=generator)[:PATCHES]]
    mean_X = patches_NX.mean(0)  # left out, so that scores are no small differences of large numbers
    centers_KX, off = k_means(patches_NX - mean_X, c.codes, generator)
    spread, X = max(off**0.5, LEAST_SPREAD), len(mean_X)
    if c.width >= X:  # turned somehow, so that every channel has a share
        basis_DX = torch.linalg.qr(torch.randn(c.width, X, generator=generator)).Q
    else:  # the directions in which codes differ most
        basis_DX = torch.linalg.eigh(centers_KX.T @ centers_KX).eigenvectors.flip(1)[:, : c.width].T
    turned_KD = centers_KX @ basis_DX.T
    into, scores, vectors, out = model.encoder[0], model.encoder[-1], model.decoder[0], model.decoder[-2]
    put(into, basis_DX.unflatten(1, (c.channels, c.patch_size, c.patch_size)), -basis_DX @ mean_X)
    put(scores, (turned_KD / spread**2)[..., None, None], -turned_KD.square().sum(1) / (2 * spread**2))
    put(vectors, turned_KD.T[..., None, None], torch.zeros(c.width))
    center_and_scale = torch.cat([basis_DX.T, torch.zeros_like(basis_DX.T)])
    put(out, center_and_scale[..., None, None], torch.cat([mean_X, torch.full((X,), LEAST_LOG_SCALE)]))


def put(layer: nn.Module, weight: Tensor, bias: Tensor) -> None:
    """Numbers into a convolution."""
    assert isinstance(layer, nn.Conv2d)
    assert layer.bias is not None
    layer.weight.copy_(weight)
    layer.bias.copy_(bias)


# Schedules: how the temperature falls and the divergence comes to count (the paper's shapes).


def annealed(step: int, steps: int, first: float = 1.0, last: float = 1 / 16) -> float:
    """The temperature after `step` of `steps`: from first to last as half a cosine, and then it stays."""
    return last + (first - last) * half_cosine(step, steps)


def rising(step: int, steps: int, most: float) -> float:
    """The weight of the divergence: from 0 to most, the same way."""
    return most * (1 - half_cosine(step, steps))


def half_cosine(step: int, steps: int) -> float:
    """From 1 to 0 over `steps`."""
    return (1 + math.cos(math.pi * min(1.0, step / max(1, steps)))) / 2


# k-means: a few points such that each of many has one of them near.


def k_means(points_NX: Tensor, K: int, generator: torch.Generator) -> tuple[Tensor, float]:
    """(K centers [K, X] of distinct points, the mean squared error of a coordinate) (Lloyd 1982).

    If there are fewer points than centers, some centers are the same.
    """
    points_NX = points_NX.unique(dim=0)
    order = torch.randperm(len(points_NX), generator=generator)
    centers_KX = points_NX[order.repeat(-(-K // len(order)))[:K]]
    for _ in range(ROUNDS):
        nearest_N = nearest(points_NX, centers_KX)
        counts_K = torch.bincount(nearest_N, minlength=K)
        sums_KX = torch.zeros_like(centers_KX).index_add_(0, nearest_N, points_NX)
        means_KX = sums_KX / counts_K.clamp(min=1)[:, None]
        centers_KX = torch.where(counts_K[:, None] > 0, means_KX, centers_KX)
    off = (points_NX - centers_KX[nearest(points_NX, centers_KX)]).square().mean().item()
    return centers_KX, off


def nearest(points_NX: Tensor, centers_KX: Tensor) -> Tensor:
    """The index of each point's nearest center [N]: |p - c|^2 is least where p . c - |c|^2 / 2 is most."""
    half_K = centers_KX.square().sum(1) / 2
    parts = points_NX.split(max(1, AT_ONCE // len(centers_KX)))
    return torch.cat([(some @ centers_KX.T - half_K).argmax(1) for some in parts])
