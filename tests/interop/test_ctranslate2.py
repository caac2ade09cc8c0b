"""CTranslate2, out and in: the same logits and texts there, and the same weights back."""

import json
import random
import shutil
import sys
from dataclasses import fields, replace

import pytest
import torch
import transformers
from ctranslate2 import specs
from ctranslate2.converters.transformers import TransformersConverter
from helpers import hf_zoo, tiny
from helpers.ctranslate2_cases import MODELS, SPECIAL, loaded_of, translator
from helpers.hostile_files import small_tokenizer
from helpers.small_runs import (
    PAIRS,
    small_run,  # noqa: F401 (fixtures)
)

import heedful
from heedful.decode.beam import beam_search
from heedful.decode.beam_settings import BeamSettings
from heedful.decode.greedy import greedy
from heedful.decode.step import step_of
from heedful.interop.ctranslate2 import write as to_ctranslate2
from heedful.interop.ctranslate2.reopen import reopen
from heedful.interop.foreign import NetworkInput
from heedful.interop.formats import load
from heedful.models.base.shells import Decoder, EncoderDecoder


@pytest.fixture(scope="module", params=MODELS)
def written(request, tmp_path_factory):
    """(a model of ours, its folder in float32)."""
    ours = loaded_of(MODELS[request.param])
    folder = tmp_path_factory.mktemp("model")
    to_ctranslate2.write(ours, folder)
    return ours, folder


def read_and_target(ours, length, seed):
    """Random tokens without a meaning: to be read, and to be written."""
    dice = random.Random(seed)
    target_vocab = getattr(ours.config, "target_vocab", ours.config.vocab)
    ids = [dice.randrange(3, ours.config.vocab) for _ in range(length)]
    return ids, [SPECIAL["decoder_start"], *(dice.randrange(3, target_vocab) for _ in range(length + 2))]


@torch.no_grad()
def logits(ours, ids, target):
    model = ours.model
    if isinstance(model, EncoderDecoder):
        return model(torch.tensor([ids]), torch.tensor([target]))[0]
    if isinstance(model, Decoder):
        return model(torch.tensor([ids]))[0]
    hidden = model.encoder(torch.tensor([ids]))[0]
    return torch.cat([hidden, model(torch.tensor([ids]))["pooled"]]) if model.heads else hidden


def outputs(there, ids, target):
    """All that the other library returns, as one table."""
    return torch.cat(list(there.outputs([NetworkInput(ids, target)])[0].values()))


@torch.no_grad()
def texts(ours, ids, new):
    """Greedy, and by a beam of 4 without length normalization."""
    translates = isinstance(ours.model, EncoderDecoder)
    prompt = torch.tensor([[SPECIAL["decoder_start"]] if translates else ids])
    step = [step_of(ours.model, torch.tensor([ids])) if translates else step_of(ours.model) for _ in range(2)]
    settings = BeamSettings(4, 1, "power", 0.0, stopping="exact")
    return [
        greedy(step[0], prompt, longest=new, eos=SPECIAL["eos"])[0].words,
        beam_search(step[1], prompt, longest=new, eos=SPECIAL["eos"], settings=settings)[0][0].words,
    ]


# Out


def test_it_computes_the_same_there(written):
    ours, folder = written
    there = reopen(folder)
    for length in (1, 4, 9):
        ids, target = read_and_target(ours, length, seed=length)
        expected = logits(ours, ids, target)
        found = outputs(there, ids, target)
        assert found.shape == expected.shape
        torch.testing.assert_close(found, expected, rtol=1e-5, atol=1e-5)


def test_it_writes_the_same_texts_there(written):
    ours, folder = written
    there = reopen(folder)
    for length in (1, 3, 5, 8, 11):
        ids, _ = read_and_target(ours, length, seed=100 + length)
        if not isinstance(ours.model, EncoderDecoder | Decoder):
            assert there.greedy(ids, 7) is None and there.beam(ids, 4, 7) is None
            continue
        assert [there.greedy(ids, 7), there.beam(ids, 4, 7)] == texts(ours, ids, 7)


def test_whole_numbers_agree_and_leave_the_model_as_it_was(tmp_path):
    ours = loaded_of(MODELS["post-norm"])
    before = {name: weight.clone() for name, weight in ours.model.named_parameters()}
    to_ctranslate2.write(ours, tmp_path, "int8")
    assert all(torch.equal(weight, before[name]) for name, weight in ours.model.named_parameters())
    there, agree, count = reopen(tmp_path), 0, 0
    for seed in range(12):
        ids, target = read_and_target(ours, 6, seed)
        a, b = outputs(there, ids, target), logits(ours, ids, target)
        assert 1e-4 < (a - b).abs().max() < 0.3  # it is whole numbers, and of this model
        agree, count = agree + int((a.argmax(-1) == b.argmax(-1)).sum()), count + len(target)
    assert agree / count > 0.9


@pytest.mark.parametrize("name", hf_zoo.FAMILIES)
def test_every_family_leaves_or_says_why_not(name, tmp_path):
    """Also those that are not read back: BART, DistilBERT."""
    for seed in range(3):
        folder = tmp_path / f"{name} {seed}"
        hf_zoo.write(hf_zoo.make(name, seed), folder)
        ours = load(folder)
        why = to_ctranslate2.refuse(ours)
        if why is not None:
            assert why.startswith("CTranslate2 ") and len(why) < 200
            assert name not in ("transformer", "gpt2", "t5", "pegasus", "bart", "mbart")
            continue
        (tmp_path / str(seed)).mkdir()
        to_ctranslate2.write(ours, tmp_path / str(seed))
        ids, target = read_and_target(ours, 4, seed)
        target[0] = ours.special.get("decoder_start", 0)
        found = outputs(reopen(tmp_path / str(seed)), ids, target)
        torch.testing.assert_close(found, logits(ours, ids, target), rtol=1e-5, atol=1e-5)


REFUSED = {
    "gpt3": (tiny.DECODERS["gpt3"], "not every token sees"),
    "modern": (tiny.DECODERS["modern"], r"its activation \(relu_squared\) is not among relu"),
    "mixture": (tiny.DECODERS["mixture"], "feed-forward layers are of another kind"),
    "shaw": (translator(positions="shaw"), "positions \\(NoPosition, Shaw\\)"),
    "both": (translator(positions="sinusoidal+rotary"), "positions \\(Sinusoidal, Rotary\\)"),
    "activation": (translator(activation="relu_squared"), "activation \\(relu_squared\\)"),
    "heads": (tiny.ENCODERS["bert"], "it has a head"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_it_has_not_is_refused_in_a_sentence(name, tmp_path):
    entry, why = REFUSED[name]
    with pytest.raises(heedful.BadInput, match=why):
        to_ctranslate2.write(loaded_of(entry), tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_a_text_that_never_ends_and_other_kinds_are_refused(tmp_path):
    ours = loaded_of(MODELS["gpt2"])
    assert "ends a text" in to_ctranslate2.refuse(replace(ours, special={"bos": 1}))
    assert "starts with" in to_ctranslate2.refuse(replace(loaded_of(MODELS["post-norm"]), special={"eos": 2}))
    with pytest.raises(heedful.BadInput, match="float32 or int8, not int4"):
        to_ctranslate2.write(ours, tmp_path, "int4")


def test_the_folder_is_whole(tmp_path):
    """Words, tokens with a meaning, and the tokenizer: CTranslate2 and `tokenizers` need nothing else."""
    ours = replace(
        loaded_of(MODELS["post-norm"]),
        tokenizer=small_tokenizer(),
        special={"bos": 0, "eos": 1, "decoder_start": 0},
    )
    to_ctranslate2.write(ours, tmp_path)
    words = json.loads((tmp_path / "shared_vocabulary.json").read_text())
    assert words[:4] == ["<s>", "</s>", "a", "b"] and words[8:10] == ["<8>", "<9>"] and len(set(words)) == 29
    said = json.loads((tmp_path / "config.json").read_text())
    assert (said["bos_token"], said["eos_token"], said["decoder_start_token"]) == ("<s>", "</s>", "<s>")
    assert said["add_source_bos"] is False and said["add_source_eos"] is False
    there, back = reopen(tmp_path), heedful.load(tmp_path)
    assert back.special == ours.special
    for text in ("abc", "ab c", "a</s>b", ""):
        assert there.tokens(text) == back.tokenizer.encode(text).ids == ours.tokenizer.encode(text).ids


@pytest.mark.parametrize("name", ["demo", "separate", "lm"])
def test_a_run_answers_the_same_there_and_when_it_comes_back(name, small_run, tmp_path):
    """Sentence by sentence, from text to text."""
    run = heedful.load(small_run(name))
    to_ctranslate2.write(run.loaded, tmp_path)
    there, back = reopen(tmp_path), heedful.load(tmp_path)
    texts = list(PAIRS) if name != "lm" else ["the cat", "the dog ate", "f"]
    writes = run.loaded.target_tokenizer or run.tokenizer
    for text in texts:
        assert there.tokens(text) == run.tokenizer.encode(text).ids
        found = writes.decode(there.greedy(there.tokens(text), 9))
        if name == "lm":
            assert found == run.generate(text, max_new_tokens=9) == back.generate(text, max_new_tokens=9)
        else:
            assert (
                found
                == run.translate(text, max_new_tokens=9, beam=1)
                == back.translate(text, max_new_tokens=9, beam=1)
            )
            assert name != "demo" or found == PAIRS[text]
            best = there.beam(there.tokens(text), 4, 9)
            assert writes.decode(best) == run.translate(text, max_new_tokens=9, beam=4, length_alpha=0.0)


def test_absence_is_said_with_the_install_line(tmp_path, monkeypatch):
    for name in [name for name in sys.modules if name.startswith("ctranslate2")]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(
        heedful.BadInput, match='ctranslate2 is not installed: pip install "heedful\\[ctranslate2\\]"'
    ):
        to_ctranslate2.write(loaded_of(MODELS["gpt2"]), tmp_path)


# In


def test_what_went_out_comes_back_bit_by_bit(written):
    ours, folder = written
    back = heedful.load(folder)
    assert back.architecture == ours.architecture
    lost = {"dropout", "attention_dropout", "activation_dropout"}
    for field in fields(ours.config):
        if field.name not in lost:
            assert getattr(back.config, field.name) == getattr(ours.config, field.name), field.name
    theirs = dict(back.model.named_parameters())
    for name, weight in ours.model.named_parameters():
        assert torch.equal(theirs[name], weight), name
    if isinstance(ours.model, EncoderDecoder | Decoder):
        assert back.special == (
            {**SPECIAL} if isinstance(ours.model, EncoderDecoder) else {"pad": 0, "bos": 1, "eos": 2}
        )


def test_whole_numbers_come_back_within_half_a_step(tmp_path):
    ours = loaded_of(MODELS["as Marian"])
    to_ctranslate2.write(ours, tmp_path, "int8")
    back = dict(heedful.load(tmp_path).model.named_parameters())
    for name, weight in ours.model.named_parameters():
        if weight.ndim == 2:
            step = weight.abs().amax(1, keepdim=True) / 127
            assert ((weight - back[name]).abs() <= 0.5001 * step).all() and not torch.equal(
                weight, back[name]
            )
        else:
            assert torch.equal(weight, back[name])


@pytest.mark.parametrize("kind", ["float16", "bfloat16", "int16", "int8_float16"])
def test_every_kind_of_number_is_read(kind, tmp_path):
    ours = loaded_of(MODELS["post-norm"])
    spec = to_ctranslate2.specification(specs, ours.model)
    to_ctranslate2.place(spec, ours)
    to_ctranslate2.describe(spec, ours)
    spec.validate()
    spec.optimize(quantization=kind)
    spec.save(str(tmp_path))
    back = heedful.load(tmp_path)
    ids, target = read_and_target(ours, 5, 1)
    assert 0 < (logits(back, ids, target) - logits(ours, ids, target)).abs().max() < 0.1


def test_a_folder_of_their_own_converter_is_read(tmp_path):
    """Marian's decoder starts from a vector of zeros there: ours gets a token for it."""
    torch.manual_seed(3)
    config = transformers.MarianConfig(
        vocab_size=23,
        d_model=12,
        encoder_layers=2,
        decoder_layers=1,
        encoder_attention_heads=3,
        decoder_attention_heads=3,
        encoder_ffn_dim=14,
        decoder_ffn_dim=10,
        max_position_embeddings=31,
        pad_token_id=22,
        eos_token_id=0,
        decoder_start_token_id=22,
        forced_eos_token_id=None,
        scale_embedding=True,
    )
    theirs = transformers.MarianMTModel(config).eval()
    with torch.no_grad():
        theirs.final_logits_bias.normal_()
        theirs.model.shared.weight[22] = 0
    theirs.save_pretrained(tmp_path / "hf")
    words = ["</s>", "<unk>", *(f"w{i}" for i in range(2, 22)), "<pad>"]

    class Words:
        bos_token, eos_token, unk_token, pad_token = None, "</s>", "<unk>", "<pad>"

        def get_vocab(self):
            return {word: number for number, word in enumerate(words)}

    class Converter(TransformersConverter):
        def load_tokenizer(self, *args, **kwargs):
            return Words()

    Converter(str(tmp_path / "hf")).convert(str(tmp_path / "ct2"))
    back = heedful.load(tmp_path / "ct2")
    assert back.special == {"eos": 0, "pad": 22, "decoder_start": 22}
    ids, target = [5, 9, 3, 0], [22, 4, 8, 2]
    with torch.no_grad():
        expected = theirs(input_ids=torch.tensor([ids]), decoder_input_ids=torch.tensor([target])).logits[0]
    found = logits(back, ids, target)
    torch.testing.assert_close(found[:, :22], expected[:, :22], rtol=1e-5, atol=1e-5)
    assert (found[:, 22] < -1e8).all()
    assert back.tokenizer.encode("w4 nothing w2").ids == [4, 1, 2]


def test_words_may_stand_on_lines_and_a_source_may_end(written, tmp_path):
    ours, folder = written
    if not isinstance(ours.model, EncoderDecoder) or ours.config.vocab != getattr(
        ours.config, "target_vocab", 29
    ):
        return
    shutil.copytree(folder, tmp_path / "model")
    path = tmp_path / "model" / "shared_vocabulary.json"
    words = json.loads(path.read_text())
    path.unlink()
    path.with_suffix(".txt").write_text("\n".join(words) + "\n")
    config = tmp_path / "model" / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"add_source_eos": True}))
    back = heedful.load(tmp_path / "model")
    assert back.tokenizer.encode("<7> <5>").ids == [7, 5, SPECIAL["eos"]]
