"""Mixture of experts (Shazeer et al. 2017): many feed-forward layers, of which each token is sent to a few.

    y = sum_i G(x)_i E_i(x)
    G(x) = softmax(KeepTopK(H(x), k))
    H(x)_i = (x W_g)_i + eps_i softplus((x W_noise)_i),  eps_i ~ N(0, 1), in training only

A model has the parameters of all experts and pays for k of them. Left alone, a gate soon sends everyone to
the same few, so a loss pulls it towards an even load: `ImportanceAndLoad` (Shazeer) or `SwitchBalance` (Fedus
et al. 2021).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from .aux_loss import Aux

Expert = Callable[[Tensor], Tensor]


# The formula, and the same sum with each expert called once, on the tokens that chose it.


def mix_plain(x_ND: Tensor, gates_NE: Tensor, experts: Sequence[Expert]) -> Tensor:
    """sum_i G(x)_i E_i(x): every expert computes every token.

    Args:
        x_ND: N tokens.
        gates_NE: The share of each expert for each token.
        experts: E functions of vectors.

    Returns:
        Vectors [N, D].

    Example:
        >>> mix_plain(torch.ones(1, 2), torch.tensor([[0.25, 0.75]]), [lambda x: x, lambda x: 5 * x])
        tensor([[4., 4.]])
    """
    outputs_NED = torch.stack([expert(x_ND[None])[0] for expert in experts], 1)
    return (gates_NE[..., None] * outputs_NED).sum(1)


def mix_grouped(
    x_ND: Tensor,
    chosen_NK: Tensor,
    gates_NK: Tensor,
    experts: Sequence[Expert],
    room: int | None = None,
) -> Tensor:
    """`mix_plain` where all but the chosen gates are 0: each expert computes its own tokens.

    An expert that nobody chose is called too, with no tokens: its gradient is then 0 and not missing, which
    processes that add up gradients rely on.

    Args:
        x_ND: N tokens.
        chosen_NK: Numbers of the K experts of each token.
        gates_NK: Their shares.
        experts: E functions of vectors.
        room: Tokens an expert takes; who comes later gets nothing. None: all.

    Returns:
        Vectors [N, D].

    Example:
        >>> x, chosen, gates = torch.ones(1, 2), torch.tensor([[1]]), torch.tensor([[0.5]])
        >>> mix_grouped(x, chosen, gates, [lambda x: x, lambda x: 4 * x])
        tensor([[2., 2.]])
    """
    (N, K), E = chosen_NK.shape, len(experts)
    expert_M = chosen_NK.flatten()
    order_M = expert_M.argsort(stable=True)  # by expert, and for each in the order of the tokens
    sizes_E = expert_M.bincount(minlength=E)
    if room is not None:
        starts_E = sizes_E.cumsum(0) - sizes_E
        places_M = torch.arange(N * K, device=x_ND.device) - starts_E[expert_M[order_M]]
        order_M, sizes_E = order_M[places_M < room], sizes_E.clamp(max=room)
    groups = x_ND[order_M // K].split(sizes_E.tolist())
    sorted_MD = torch.cat([expert(group[None])[0] for expert, group in zip(experts, groups, strict=True)])
    outputs_MD = sorted_MD.new_zeros(N * K, x_ND.shape[1]).index_copy(0, order_M, sorted_MD)
    return (gates_NK[..., None] * outputs_MD.unflatten(0, (N, K))).sum(1).to(x_ND.dtype)


# Gates: who does what.


@dataclass(frozen=True)
class Routing:
    """Which experts each token was sent to."""

    chosen_NK: Tensor  # best first
    gates_NK: Tensor  # what each of them counts
    scores_NE: Tensor  # x W_g
    noisy_NE: Tensor  # H(x), by which was chosen
    spread_NE: Tensor | None = None  # the noise's standard deviation; None where there was no noise

    @property
    def load_E(self) -> Tensor:
        """How many tokens each expert got."""
        return self.chosen_NK.flatten().bincount(minlength=self.scores_NE.shape[1])

    @property
    def gates_NE(self) -> Tensor:
        """The gates of all experts, 0 for those not chosen."""
        return torch.zeros_like(self.scores_NE).scatter(1, self.chosen_NK, self.gates_NK)


class NoisyTopK(nn.Module):
    """Shazeer's gate: the k largest of the scores with noise, and a softmax over these alone.

    Both matrices begin at 0: at first, noise alone decides.

    Args:
        width: Width D of a token.
        experts: Number of experts E.
        chosen: Experts of each token, k.
        least_noise: Added to the noise's standard deviation (tensor2tensor: 0.01).

    Example:
        >>> NoisyTopK(width=8, experts=4, chosen=2)(torch.randn(5, 8)).chosen_NK.shape
        torch.Size([5, 2])
    """

    def __init__(self, width: int, experts: int, chosen: int, least_noise: float = 0.0) -> None:
        """least_noise: added to the noise's standard deviation (tensor2tensor: 0.01)."""
        super().__init__()
        check_chosen(chosen, experts)
        self.chosen, self.least_noise = chosen, least_noise
        self.weight = nn.Parameter(torch.zeros(width, experts))
        self.noise = nn.Parameter(torch.zeros(width, experts))

    def forward(self, x_ND: Tensor) -> Routing:
        scores_NE = in_full(x_ND, self.weight)
        if not self.training:
            return self.route(scores_NE, scores_NE)
        spread_NE = F.softplus(in_full(x_ND, self.noise)) + self.least_noise
        return self.route(scores_NE, scores_NE + torch.randn_like(scores_NE) * spread_NE, spread_NE)

    def route(self, scores_NE: Tensor, noisy_NE: Tensor, spread_NE: Tensor | None = None) -> Routing:
        best_NK, chosen_NK = largest(noisy_NE, self.chosen)
        return Routing(chosen_NK, best_NK.softmax(-1), scores_NE, noisy_NE, spread_NE)


class SwitchTopK(nn.Module):
    """The Switch Transformer's gate: a softmax over all experts, of which the k largest count as they are.

    No noise, so a gate of a single expert still learns from how useful it was: its share is below 1.

    Args:
        width: Width D of a token.
        experts: Number of experts E.
        chosen: Experts of each token, k.

    Example:
        >>> SwitchTopK(width=8, experts=4)(torch.randn(5, 8)).chosen_NK.shape
        torch.Size([5, 1])
    """

    def __init__(self, width: int, experts: int, chosen: int = 1) -> None:
        super().__init__()
        check_chosen(chosen, experts)
        self.chosen = chosen
        self.weight = nn.Parameter(torch.empty(width, experts))
        nn.init.normal_(self.weight, std=math.sqrt(0.1 / width))  # equal scores would all choose the first

    def forward(self, x_ND: Tensor) -> Routing:
        scores_NE = in_full(x_ND, self.weight)
        gates_NK, chosen_NK = largest(scores_NE.softmax(-1), self.chosen)
        return Routing(chosen_NK, gates_NK, scores_NE, scores_NE)


def check_chosen(chosen: int, experts: int) -> None:
    if not 1 <= chosen <= experts:
        raise ValueError(
            f"a token is sent to at least 1 expert and to no more than there are, {experts}: not to {chosen}"
        )


def in_full(x_ND: Tensor, matrix_DE: Tensor) -> Tensor:
    """x W in fp32 at least, whatever the rest is computed in: a rounded score sends a token elsewhere."""
    with torch.autocast(x_ND.device.type, enabled=False):
        return (x_ND.float() if x_ND.dtype.itemsize < 4 else x_ND) @ matrix_DE


def largest(scores_NE: Tensor, count: int) -> tuple[Tensor, Tensor]:
    """The largest scores and whose they are. Of equal ones the first counts as larger, on every device."""
    sorted_NE, order_NE = scores_NE.sort(dim=-1, descending=True, stable=True)
    return sorted_NE[:, :count], order_NE[:, :count]


# Balance: what is minimized beside the task's own loss.


def cv_squared(amount_E: Tensor) -> Tensor:
    """The squared coefficient of variation: variance / mean^2, 0 where all are equal."""
    mean = amount_E.mean()
    return (amount_E - mean).square().mean() / (mean.square() + 1e-10)


def smooth_load(routing: Routing) -> Tensor:
    """Load_E: how many tokens each expert would get if the noise were drawn again, in a differentiable form.

    P(x, i) = Phi((score_i - the k-th largest noisy score of the others) / spread_i), summed over tokens. With
    all experts chosen, and where there is no noise, it is the plain count.
    """
    K, E = routing.chosen_NK.shape[1], routing.scores_NE.shape[1]
    if routing.spread_NE is None or K == E:
        return routing.load_E.to(routing.scores_NE.dtype)
    best_NK, _ = largest(routing.noisy_NE, K + 1)
    inside_NE = torch.zeros_like(routing.noisy_NE, dtype=torch.bool).scatter(1, routing.chosen_NK, True)
    # Without component i, the k-th largest is the next one if i is among the k, else the last of the k.
    threshold_NE = torch.where(inside_NE, best_NK[:, K:], best_NK[:, K - 1 : K])
    spread_NE = routing.spread_NE.clamp(min=1e-6)
    return torch.special.ndtr((routing.scores_NE - threshold_NE) / spread_NE).sum(0)


@dataclass(frozen=True)
class ImportanceAndLoad:
    """Shazeer's: w CV(sum of gates)^2 + w CV(load)^2, over the experts."""

    weight: float = 0.01  # tensor2tensor's; the paper's usual is 0.1

    def __call__(self, routing: Routing) -> Tensor:
        importance_E = routing.gates_NE.sum(0)
        return self.weight * (cv_squared(importance_E) + cv_squared(smooth_load(routing)))


@dataclass(frozen=True)
class SwitchBalance:
    """The Switch Transformer's: alpha E sum_i f_i P_i, of the share f of tokens and the mean probability P.

    It is alpha where all is even. With several experts a token, f is their share of all choices.
    """

    weight: float = 0.01

    def __call__(self, routing: Routing) -> Tensor:
        (N, K), E = routing.chosen_NK.shape, routing.scores_NE.shape[1]
        share_E = routing.load_E / max(1, N * K)
        probability_E = routing.scores_NE.softmax(-1).sum(0) / max(1, N)
        return self.weight * E * (share_E * probability_E).sum()


# The layer.


class Experts(nn.Module):
    """Feed-forward by experts: in a block it stands where the one feed-forward layer stood.

    Padding is not sent to anyone and gets 0. No token is dropped, unless `capacity` is given: in training, an
    expert then takes at most capacity times an even share of the tokens, and to the others it adds nothing.

    Args:
        experts: The experts.
        gate: Who chooses among them.
        balance: The loss that keeps them evenly used.
        capacity: See above; None: no limit.

    Example:
        >>> from heedful.parts.layers import FeedForward
        >>> parts = [FeedForward(8, 16) for _ in range(4)]
        >>> Experts(parts, SwitchTopK(8, experts=4), SwitchBalance())(torch.randn(2, 5, 8)).shape
        torch.Size([2, 5, 8])
    """

    def __init__(
        self,
        experts: Sequence[nn.Module],
        gate: NoisyTopK | SwitchTopK,
        balance: ImportanceAndLoad | SwitchBalance,
        capacity: float | None = None,
    ) -> None:
        super().__init__()
        if gate.weight.shape[1] != len(experts):
            raise ValueError(f"the gate chooses among {gate.weight.shape[1]} experts, not {len(experts)}")
        self.gate = gate
        self.experts = nn.ModuleList(experts)
        self.balance, self.capacity = balance, capacity

    def forward(self, x_BTD: Tensor, aux: Aux | None = None) -> Tensor:
        """aux: hears the balance loss and the loads, and knows which tokens are real."""
        real_BT = None if aux is None or aux.real_BT is None else aux.real_BT.expand(x_BTD.shape[:2])
        x_ND = x_BTD.flatten(0, 1) if real_BT is None else x_BTD[real_BT]
        routing = self.gate(x_ND)
        y_ND = mix_grouped(x_ND, routing.chosen_NK, routing.gates_NK, list(self.experts), self.room(routing))
        if aux is not None:
            aux.say(self.balance(routing), routing.load_E)
        if real_BT is None:
            return y_ND.view(x_BTD.shape)
        return torch.zeros_like(x_BTD).masked_scatter(real_BT[..., None], y_ND)

    def room(self, routing: Routing) -> int | None:
        """Tokens that an expert takes; None for all.

        Only in training: an answer must not depend on its neighbors.
        """
        if self.capacity is None or not self.training:
            return None
        return math.ceil(self.capacity * routing.chosen_NK.numel() / len(self.experts))


def auxiliary(model: nn.Module) -> Aux | None:
    """An `Aux` for a forward pass of a model that has experts; None for any other."""
    return Aux() if any(isinstance(module, Experts) for module in model.modules()) else None


def make_experts(
    make: Callable[[], nn.Module],
    width: int,
    experts: int,
    chosen: int,
    gate: str = "noisy",
    balance: float = 0.01,
    capacity: float = 0.0,
) -> Experts:
    """So many experts, each as `make` makes it, with a gate and its balance loss by name.

    Args:
        make: Makes an expert.
        width: Width D of a token.
        experts: Number of experts E.
        chosen: Experts of each token, k.
        gate: "noisy" or "switch".
        balance: Weight of the balance loss.
        capacity: As in `Experts`; 0: no limit.

    Returns:
        The layer.

    Example:
        >>> from heedful.parts.layers import FeedForward
        >>> len(make_experts(lambda: FeedForward(8, 16), width=8, experts=4, chosen=2).experts)
        4
    """
    chooses, balances = GATES[gate]
    made = [make() for _ in range(experts)]
    return Experts(made, chooses(width, experts, chosen), balances(balance), capacity or None)


GATES: dict[str, tuple[type[NoisyTopK | SwitchTopK], type[ImportanceAndLoad | SwitchBalance]]] = {
    "noisy": (NoisyTopK, ImportanceAndLoad),
    "switch": (SwitchTopK, SwitchBalance),
}
