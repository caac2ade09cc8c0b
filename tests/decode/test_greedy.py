"""Greedy decoding equals taking the likeliest word of a full forward, again and again."""

import pytest
import torch
from helpers import tiny

from heedful.decode.greedy import greedy_continuation, greedy_translation

BOS, EOS = 1, 2


@pytest.mark.parametrize("name", tiny.ENCODER_DECODERS)
def test_greedy_translation_is_the_likeliest_word_again_and_again(name):
    model = tiny.build(tiny.ENCODER_DECODERS[name], seed=3)
    torch.manual_seed(0)
    source, lengths = torch.randint(3, 17, (5, 6)), torch.tensor([6, 2, 4, 1, 5])
    found = greedy_translation(model, source, lengths, BOS, EOS, longest=9)
    for b, n in enumerate(lengths):
        written = [BOS]
        while len(written) < 10:
            scores = model(source[b : b + 1, :n], torch.tensor([written]))
            word = int(scores[0, -1].argmax())
            if word == EOS:
                break
            written.append(word)
        assert found[b] == written[1:]


def test_finished_sentences_stop_and_the_others_go_on():
    model = tiny.build(tiny.ENCODER_DECODERS["transformer"], seed=3)
    source = torch.randint(3, 17, (8, 6), generator=torch.Generator().manual_seed(1))
    lengths = torch.full((8,), 6)
    words = greedy_translation(model, source, lengths, BOS, EOS, longest=12)
    eos = max((w for row in words for w in row), key=lambda w: sum(w in row for row in words))
    ended = greedy_translation(model, source, lengths, BOS, eos, longest=12)
    assert len({len(row) for row in ended}) > 1, "some stop, some do not"
    for row, whole in zip(ended, words, strict=True):
        assert row == (whole[: whole.index(eos)] if eos in whole else whole)


@pytest.mark.parametrize("name", tiny.DECODERS)
def test_greedy_continuation_is_the_likeliest_token_again_and_again(name):
    model = tiny.build(tiny.DECODERS[name])
    prompt = torch.randint(17, (4,))
    found, ids = greedy_continuation(model, prompt, 9, context=31), prompt.tolist()
    for _ in range(9):
        ids.append(int(model(torch.tensor([ids]))[0, -1].argmax()))
    assert found == ids[4:]


def test_continuation_goes_on_past_the_context():
    model = tiny.build(tiny.DECODERS["gpt2"])
    assert len(greedy_continuation(model, torch.randint(17, (40,)), 50, context=31)) == 50
