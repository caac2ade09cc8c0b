"""How the texts of a folder become tokens: the special ones, those that end a text, and unknown words."""

import pytest
import torch
from helpers.loaded_models import TEXTS, copied, template
from helpers.tokenizer_cases import byte_level

import heedful
import heedful.use.model
from heedful import Loaded
from heedful.models import gpt2
from heedful.use.wording import FolderWording


@pytest.mark.parametrize("name", ["gpt2", "llama", "t5", "marian"])
@pytest.mark.parametrize("beam", [1, 3])
def test_a_hugging_face_folder_writes_what_transformers_writes(name, beam, theirs):
    """The special tokens around a text, those that begin and end one, and those never to be written."""
    model, ours, tokenizer = theirs(name)
    do = ours.translate if name in ("t5", "marian") else ours.generate
    how = {"beam": beam, "max_new_tokens": 13}
    how |= {"length_penalty": "power", "length_alpha": 1.0, "n_best": 2} if beam > 1 else {}
    for text, answer in zip(TEXTS, do(TEXTS, **how), strict=True):
        ids = tokenizer.encode(text).ids
        their = model.generate(
            torch.tensor([ids]),
            attention_mask=torch.ones(1, len(ids)),
            num_beams=beam,
            do_sample=False,
            max_new_tokens=13,
            length_penalty=1.0,
            num_return_sequences=2 if beam > 1 else 1,
            pad_token_id=399 if name == "gpt2" else 1,
        )
        for one, row in zip(answer.n_best, their.tolist(), strict=True):
            new = row[1:] if name in ("t5", "marian") else row[len(ids) :]
            new = new[: len(one.tokens)]
            assert one.tokens == ours.wording.names(new)
        assert (answer.tokens[-1] in ours.wording.names(ours.wording.ends)) == answer.ended


def ids_of(rows):
    return [row.ids for row in rows]


def test_the_special_tokens_of_a_folder_are_where_it_says(theirs):
    _, llama, tokens = theirs("llama")
    assert llama.wording.ends == [7, 9, 21] and ids_of(llama.wording.prompt([""])) == [[0]]
    plain = tokens.encode("cat", add_special_tokens=False).ids
    assert ids_of(llama.wording.prompt(["cat"])) == [[0, *plain]]
    _, t5, tokens = theirs("t5")
    assert t5.wording.source(["cat"])[0].ids[-1] == tokens.token_to_id("</s>") == t5.wording.ends[0]
    assert t5.wording.start == tokens.token_to_id("<pad>")
    _, marian, tokens = theirs("marian")
    never = marian.decoding("translate", {}).bad_tokens
    assert never == ((tokens.token_to_id("<pad>"),), (5,), (11, 3))
    _, gpt, tokens = theirs("gpt2")
    assert ids_of(gpt.wording.prompt(["", "cat"])) == [[0], tokens.encode("cat").ids]
    ended = template(byte_level(), "$A <|endoftext|>")
    config = gpt2.GPT2Config(vocab=400, context=11, layers=1, width=12, heads=3, ffn_width=20)
    words = FolderWording(Loaded("gpt2", config, gpt2.build(config), ended, {"bos": 0}), "nowhere")
    assert ids_of(words.prompt(["cat", ""])) == [
        ended.encode("cat").ids[:-1],
        [0],
    ]  # to go on, a text must not have ended


def test_any_of_several_tokens_ends_a_text(theirs, tmp_path):
    _, ours, tokenizer = theirs("llama")
    whole = ours.generate(TEXTS[0], max_new_tokens=13)
    at = max(whole.tokens.index(token) for token in whole.tokens)
    copied(ours, tmp_path, eos_token_id=[7, tokenizer.token_to_id(whole.tokens[at])])
    ended = heedful.load(tmp_path).generate(TEXTS[0], max_new_tokens=13)
    assert ended.ended and ended.tokens == whole.tokens[: at + 1] and len(ended) < len(whole)


def test_words_that_a_vocabulary_lacks_are_found_where_they_stand(load, theirs):
    texts = ["the  zebra sleeps, zoë", "the cat", "", "cat [MASK]"]
    words = [["zebra", ",", "zoë"], [], [], ["[", "MASK", "]"]]
    assert load("demo").unknown_words(texts) == words  # by whole words
    assert load("mlm").unknown_words(["the [MASK], [MASK]. zoë"]) == [[",", "zoë"]]  # where a blank is none
    assert load("lm").unknown_words(["the zebra ø"]) == [["z", "b", "r", "ø"]]  # by characters
    assert load("bytes").unknown_words(["日本 the zebra"]) == [[]]  # bytes know everything
    _, ours, tokenizer = theirs("BertForSequenceClassification")
    text = "the cat 日本 sat"
    unknown = tokenizer.encode(text).ids.count(tokenizer.token_to_id("[UNK]"))
    assert len(ours.unknown_words([text])[0]) == unknown > 0
