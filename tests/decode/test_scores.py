"""The top tokens of a large vocabulary, found stretch by stretch and a few rows at a time, are torch's."""

import pytest
import torch

from heedful.decode import scores as s
from heedful.decode.filters import Context, forbidden, repetition_penalty

R, K = 5, 3


@pytest.fixture(params=[(7, 4, 40), (3, 4, 10**9), (7, 10**9, 1), (128, 1 << 17, 1 << 19)], ids=str)
def sizes(request, monkeypatch):
    """Stretches and parts of a size that makes these few scores many; then as they are."""
    for name, size in zip(("STRETCH", "MANY", "NEAR"), request.param, strict=True):
        monkeypatch.setattr(s, name, size)


def scores(V, seed=0):
    return torch.randn(R, V, generator=torch.Generator().manual_seed(seed)) * 3


@pytest.mark.parametrize("V", [23, 224, 230, 1009])
def test_the_best_words_and_their_log_probabilities(sizes, V):
    log_p, changed, words = s.top_tokens(scores(V), K)
    expected = scores(V).log_softmax(-1).topk(K)
    assert torch.equal(words, expected.indices) and torch.equal(log_p, changed)
    torch.testing.assert_close(log_p, expected.values)


@pytest.mark.parametrize("V", [23, 224, 230, 1009])
def test_the_best_words_as_filters_leave_them(sizes, V):
    """Each row has written something else, and its filters see that, whichever part of the rows it is in."""
    tokens = torch.randint(V, (R, 4), generator=torch.Generator().manual_seed(3))
    favorites = scores(V).argmax(-1)
    tokens[:, 1] = torch.where(torch.arange(R) % 2 == 0, favorites, tokens[:, 1])
    written = Context.prompts(tokens, torch.tensor([4, 2, 3, 4, 2]))
    filters = [repetition_penalty(1.01), forbidden([[int(favorites[1])]])]
    log_p, changed, words = s.top_tokens(scores(V), K, filters, written)
    all_log_p, all_changed = s.apply_to_log_probabilities(filters, scores(V), written)
    assert torch.equal(words, all_changed.topk(K).indices) and not torch.equal(log_p, changed)
    torch.testing.assert_close(log_p, all_log_p.gather(1, words))
    torch.testing.assert_close(changed, all_changed.gather(1, words))


@pytest.mark.parametrize("V", [23, 224, 230, 1009])
def test_the_likeliest_word_and_its_log_probability(sizes, V):
    words = s.argmax(scores(V))
    assert torch.equal(words, scores(V).argmax(-1))
    expected = scores(V).log_softmax(-1).gather(1, words[:, None])[:, 0]
    torch.testing.assert_close(s.log_probability(scores(V), words), expected)


@pytest.mark.parametrize("V", [224, 230])
def test_of_equals_the_likeliest_is_the_first(sizes, V):
    """Wherever they stand: within a stretch, in two, and among the last that fill none."""
    tied = torch.randint(3, (R, V), generator=torch.Generator().manual_seed(1)).float()
    assert torch.equal(s.argmax(tied), tied.argmax(-1))


@pytest.mark.parametrize("V", [224, 230])
def test_the_last_words_are_looked_at_too(sizes, V):
    rising = torch.arange(V).expand(R, -1).float()
    assert s.top_tokens(rising, K)[2].tolist() == [[V - 1, V - 2, V - 3]] * R
    assert s.argmax(rising).tolist() == [V - 1] * R


@pytest.mark.parametrize("V", [224, 230])
def test_words_that_are_forbidden_come_last_and_no_number_is_seen(sizes, V):
    some = scores(V)
    some[:, torch.arange(V) % 11 > 0] = float("-inf")
    log_p, _, words = s.top_tokens(some, K)
    assert (words % 11 == 0).all() and log_p.isfinite().all()
    some[2, V // 2] = float("nan")
    assert s.top_tokens(some, K)[0][2].isnan().all() and s.top_tokens(some, K)[0][3].isfinite().all()
    assert s.argmax(some)[2] == V // 2 and s.log_probability(some, s.argmax(some))[2].isnan()


@pytest.mark.parametrize("V", [1, 2])
def test_a_vocabulary_of_no_more_words_than_are_asked_for(sizes, V):
    assert s.top_tokens(scores(V), V)[2].sort(-1).values.tolist() == [list(range(V))] * R


def test_stretches_are_used_where_there_are_many_scores():
    """Else the tests above would compare torch with itself."""
    assert s.stretches_pay(torch.empty(8, 32000), 8) and not s.stretches_pay(torch.empty(1, 32000), 8)
    assert len(s.in_parts(torch.empty(40, 32000))) == 3
