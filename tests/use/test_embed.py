"""Vectors are the last layer of the network, pooled."""

import pytest
import torch

from heedful import BadInput


@pytest.mark.parametrize("name", ["demo", "lm", "mlm", "classify", "classify-decoder"])
@pytest.mark.parametrize("pooling", ["mean", "class"])
def test_a_vector_is_the_last_layers(name, pooling, load):
    model, texts = load(name), ["the cat", "the dog ate", "a"]
    network, words = model.model, model.wording
    if pooling == "class" and name in ("demo", "lm"):
        with pytest.raises(BadInput, match="without a class token"):
            model.embed(texts, pooling=pooling)
        return
    found = model.embed(texts, pooling=pooling, batch=2)
    assert found.shape == (3, model.config.width) and found.dtype == torch.float32
    for text, vector in zip(texts, found, strict=True):
        (plain,) = words.target([text])
        named = model.tokenizer.token_to_id
        row = {"demo": plain, "lm": plain, "classify-decoder": [named("[BOS]"), *plain, named("[EOS]")]}
        ids = torch.tensor([row.get(name, [named("[CLS]"), *plain, named("[SEP]")])])
        reader = {"lm": lambda: network.hidden, "classify-decoder": lambda: network.decoder.hidden}
        hidden = reader.get(name, lambda: network.encoder)()(ids)[0]
        expected = hidden.mean(0) if pooling == "mean" else hidden[-1 if name == "classify-decoder" else 0]
        torch.testing.assert_close(vector, expected, atol=1e-5, rtol=0)
        torch.testing.assert_close(model.embed(text, pooling=pooling), vector, atol=1e-5, rtol=0)
    unit = model.embed(texts, pooling=pooling, normalize=True)
    torch.testing.assert_close(unit, found / found.norm(dim=-1, keepdim=True))
    assert model.embed([]).shape == (0, model.config.width)


def test_a_hugging_face_bert_fills_blanks_and_embeds(theirs):
    model, ours, tokenizer = theirs("BertForMaskedLM")
    texts = ["the [MASK] sat on the mat", "the cat's [MASK], isn't [MASK]?"]
    for text, filled in zip(texts, ours.fill(texts, top=4), strict=True):
        ids = tokenizer.encode(text).ids
        shares = model(torch.tensor([ids])).logits[0].softmax(-1)
        places = [i for i, token in enumerate(ids) if token == tokenizer.token_to_id("[MASK]")]
        for place, guesses in zip(places, filled.blanks, strict=True):
            best = shares[place].topk(4)
            assert [g.probability for g in guesses] == pytest.approx(best.values.tolist(), abs=1e-5)
            assert [g.word for g in guesses] == [ours.wording.word(n) for n in best.indices.tolist()]
    hidden = model.bert(torch.tensor([tokenizer.encode("the cat").ids])).last_hidden_state[0]
    torch.testing.assert_close(ours.embed("the cat"), hidden.mean(0), atol=1e-5, rtol=0)
    torch.testing.assert_close(ours.embed("the cat", pooling="class"), hidden[0], atol=1e-5, rtol=0)
