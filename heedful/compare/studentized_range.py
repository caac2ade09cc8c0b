"""Tukey's studentized range: how far the largest of several means may lie from the smallest by chance.

The range of `groups` standard normal numbers exceeds w with the chance

    sf(w) = groups * integral of phi(z) * (Phi(z)^(groups-1) - (Phi(z) - Phi(z - w))^(groups-1)) dz

where z is the largest of them. Divided by a standard deviation s that was estimated with `freedom` degrees of
freedom, it exceeds q with the chance: integral of density(s) * sf(q * s) ds. Both integrands are smooth and
fall off fast, so that the trapezoidal rule converges exponentially (Trefethen and Weideman 2014). The inner
integral is over z, the outer one over log s.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor

NODES = 256  # of the outer integral
Z = torch.linspace(-8.5, 8.5, 86, dtype=torch.float64)
WEIGHTS = torch.exp(-Z * Z / 2) / math.sqrt(2 * math.pi) * 0.2  # phi(z) dz


def range_p_value(q: float, groups: int, freedom: float) -> float:
    """The chance of a studentized range of at least q."""
    if q <= 0:
        return 1.0
    width = 9 / math.sqrt(2 * freedom)  # log s varies by about 1 / sqrt(2 freedom)
    low = min(0.0, math.log(math.sqrt(2 * freedom) / q)) - width - 25 / freedom
    logs = torch.linspace(low, math.log1p(width), NODES, dtype=torch.float64)
    s = logs.exp()
    half = freedom / 2
    constant = math.log(2) + half * math.log(half) - math.lgamma(half)
    density = torch.exp(constant + freedom * logs - half * s * s)  # of log s
    step = float(logs[1] - logs[0])
    return min(1.0, float((density * range_beyond(q * s, groups)).sum()) * step)


def range_beyond(w: Tensor, groups: int) -> Tensor:
    """The chance that standard normal numbers spread more than each w."""
    below = normal_below(Z)
    share = normal_below(Z - w[:, None]) / below
    parts = -torch.expm1((groups - 1) * torch.log1p(-share)) * below ** (groups - 1)
    return groups * (parts @ WEIGHTS)


def normal_below(z: Tensor) -> Tensor:
    """Phi; torch.special.ndtr loses the lower tail to rounding."""
    return torch.erfc(-z / math.sqrt(2)) / 2
