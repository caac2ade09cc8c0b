"""Models that write leave as Hugging Face folders, and come in from them: the same scores, weights, texts and endings."""

import dataclasses
import json
import shutil

import pytest
import tokenizers as tk
import torch
import transformers as hf
from helpers.runs import CPU, Quiet
from helpers.small_runs import (
    FILMS,
    PAIRS,
    SIZES,
    small_run,  # noqa: F401 (fixtures)
    write_files,
)
from safetensors.torch import load_file, save_file

import heedful
from heedful.cli.main import main
from heedful.errors import BadInput
from heedful.interop.hf.weights import find_weights
from heedful.interop.hf.write import write
from heedful.interop.load import load
from heedful.interop.loaded import Loaded
from heedful.models import transformer
from heedful.parts.places import Lengths
from heedful.runs import trainer
from heedful.tasks import recipe

NEW = 24


@pytest.fixture(autouse=True)
def _no_progress_bars():
    from transformers.utils import logging

    logging.disable_progress_bar()


# Translators of our own


SETTINGS = {
    "pre": {},
    "post": {"model.norm": "post"},
    "bytes": {"data.vocab": "bpe", "data.vocab_size": 300, "train.steps": 120},
    "apart": {"model.norm": "post", "data.joint": False, "train.steps": 150},
    "pre-apart": {"data.joint": False, "train.steps": 2},
    "rotary": {"model.positions": "sinusoidal+rotary", "train.steps": 2},
    "shaw": {"model.positions": "shaw", "model.norm": "post", "train.steps": 2},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """The folder of a run with these settings, trained when it is first asked for."""
    folder = tmp_path_factory.mktemp("writers")
    files = write_files(folder)
    pairs = {"data.source": files["src"], "data.target": files["tgt"], "train.steps": 60}
    pairs |= {"data.valid_source": files["src"], "data.valid_target": files["tgt"]}

    def get(name: str):
        path = folder / name
        if not path.exists():
            settings = SIZES | pairs | SETTINGS[name]
            settings |= {"evaluate.every": settings["train.steps"]}
            with torch.enable_grad():
                trainer.start(recipe.make("translate", settings=settings), path, Quiet(), CPU)
        return path

    return get


def their_texts(folder, texts, tokenizer, target=None, **how):
    model, told = hf.AutoModelForSeq2SeqLM.from_pretrained(folder, output_loading_info=True)
    assert not any(told.values()), "a weight is missing, or has no place"
    found = []
    for text in texts:
        given = tokenizer(text, return_tensors="pt")
        rows = model.generate(**given, **how)
        found.append((target or tokenizer).decode(rows[0], skip_special_tokens=True))
    return found


TEXTS = [*PAIRS, "the cat eats a fish", "i am a dog [EOS] the"]


@pytest.mark.parametrize("name, kind", [("pre", "pegasus"), ("post", "marian"), ("bytes", "pegasus")])
def test_a_translator_trained_here_translates_in_transformers(name, kind, trained, tmp_path):
    model = heedful.load(trained(name))
    heedful.save(model, tmp_path)
    assert json.loads((tmp_path / "config.json").read_text())["model_type"] == kind
    tokenizer = hf.AutoTokenizer.from_pretrained(tmp_path)
    for text in TEXTS:
        assert tokenizer(text).input_ids == model.wording.source([text])[0].ids
    greedy = model.translate(TEXTS, beam=1, longest=NEW)
    assert list(PAIRS.values()) == greedy[: len(PAIRS)]
    assert their_texts(tmp_path, TEXTS, tokenizer, num_beams=1, max_new_tokens=NEW) == greedy
    beam = {"beam": 4, "length_penalty": "power", "alpha": 0.6, "longest": NEW}
    assert their_texts(tmp_path, TEXTS, tokenizer, max_new_tokens=NEW) == model.translate(TEXTS, **beam)
    again = heedful.load(tmp_path)
    assert again.translate(TEXTS, longest=NEW) == model.translate(TEXTS, longest=NEW)
    assert again.translate(TEXTS, beam=1, longest=NEW) == greedy


def test_the_folder_says_how_to_write(trained, tmp_path):
    heedful.save(heedful.load(trained("pre")), tmp_path)
    said = hf.GenerationConfig.from_pretrained(tmp_path)
    assert (said.decoder_start_token_id, said.eos_token_id, said.pad_token_id) == (1, 2, 0)
    assert (said.num_beams, said.length_penalty, said.max_length) == (4, 0.6, 1024)
    assert said.forced_bos_token_id is None and said.forced_eos_token_id is None
    assert hf.AutoConfig.from_pretrained(tmp_path).forced_eos_token_id is None  # theirs would be [BOS]
    tokenizer = hf.AutoTokenizer.from_pretrained(tmp_path)
    assert (tokenizer.pad_token, tokenizer.eos_token, tokenizer.bos_token) == ("[PAD]", "[EOS]", "[BOS]")
    rows = tokenizer(list(PAIRS), padding=True, return_tensors="pt")
    model = hf.AutoModelForSeq2SeqLM.from_pretrained(tmp_path)
    found = tokenizer.batch_decode(model.generate(**rows, max_new_tokens=NEW), skip_special_tokens=True)
    assert found == list(PAIRS.values())


def test_a_vocabulary_for_each_side_leaves_with_both(trained, tmp_path):
    model = heedful.load(trained("apart"))
    heedful.save(model, tmp_path)
    source = hf.AutoTokenizer.from_pretrained(tmp_path)
    target = hf.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "target_tokenizer.json"))
    assert source.get_vocab() != target.get_vocab()
    found = their_texts(tmp_path, TEXTS, source, target, num_beams=1, max_new_tokens=NEW)
    assert found == model.translate(TEXTS, beam=1, longest=NEW)
    assert found[: len(PAIRS)] == list(PAIRS.values())
    again = heedful.load(tmp_path)
    assert again.translate(TEXTS) == model.translate(TEXTS)


@pytest.mark.parametrize(
    "name, words",
    [
        ("rotary", "otherwise (sinusoidal+rotary positions, interleaved sinusoids, no bias on its scores)"),
        ("shaw", "otherwise (shaw positions,"),
        ("pre-apart", "otherwise (pre-norm with a vocabulary for each side): it cannot be saved"),
    ],
)
def test_a_translator_without_a_counterpart_is_refused_with_the_difference(name, words, trained, tmp_path):
    with pytest.raises(BadInput) as refused:
        heedful.save(heedful.load(trained(name)), tmp_path / "saved")
    assert words in str(refused.value) and not (tmp_path / "saved").exists()


SIZED = transformer.TransformerConfig(
    vocab=19, target_vocab=19, context=31, layers=2, decoder_layers=3, width=12, heads=3, decoder_heads=2,
    hidden=20, decoder_hidden=14,
)  # fmt: skip


@pytest.mark.parametrize(
    "change",
    [
        {"norm": "pre"},
        {"norm": "post", "activation": "silu"},
        {"norm": "pre", "scaled": False, "output_bias": True, "activation": "gelu"},
        {"norm": "post", "shared": False, "target_vocab": 23},
        {"norm": "pre", "layout": "halves", "clip": 5},
    ],
)
def test_reordered_coordinates_give_the_same_scores(change, tmp_path):
    torch.manual_seed(3)
    config = dataclasses.replace(SIZED, **change)
    model = spread(transformer.build(config)).eval()
    special = {"pad": 0, "bos": 1, "eos": 2, "decoder_start": 1}
    heedful.save(Loaded("transformer", config, model, None, special), tmp_path / "a")
    theirs = hf.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / "a").eval()
    source, target = torch.randint(19, (3, 7)), torch.randint(config.target_vocab, (3, 5))
    lengths = torch.tensor([7, 4, 1])
    seen = (torch.arange(7) < lengths[:, None]).long()
    with torch.no_grad():
        found = theirs(input_ids=source, attention_mask=seen, decoder_input_ids=target).logits
        expected = model(source, target, Lengths(lengths))
    assert expected.abs().max() > 0.5 and (found - expected).abs().max() < 1e-5
    loaded = heedful.load(tmp_path / "a")
    with torch.no_grad():
        assert (loaded.model(source, target, Lengths(lengths)) - expected).abs().max() < 1e-5
    heedful.save(loaded, tmp_path / "b")
    same_files(tmp_path / "a", tmp_path / "b")


def spread(model: torch.nn.Module) -> torch.nn.Module:
    """Weights of a size that leaves no part idle."""
    with torch.no_grad():
        for weight in model.parameters():
            weight.copy_(torch.randn_like(weight) * (0.3 if weight.ndim > 1 else 0.1) + (weight.ndim == 1))
    return model


def same_files(one, other) -> None:
    """The same weights, bit for bit, and the same words about them."""
    assert (one / "model.safetensors").read_bytes() == (other / "model.safetensors").read_bytes()
    for name in ("config.json", "generation_config.json"):
        assert json.loads((one / name).read_text()) == json.loads((other / name).read_text())
    assert find_weights(one).keys() == find_weights(other).keys()


# Their families


def byte_level() -> tk.Tokenizer:
    """As BART's and GPT-2's: bytes merged by frequency, <s> and </s> around a text."""
    made = tk.Tokenizer(tk.models.BPE())
    made.pre_tokenizer, made.decoder = (
        tk.pre_tokenizers.ByteLevel(add_prefix_space=False),
        tk.decoders.ByteLevel(),
    )
    trainer = tk.trainers.BpeTrainer(
        vocab_size=290, special_tokens=["<s>", "<pad>", "</s>", "<unk>"], show_progress=False,
        initial_alphabet=tk.pre_tokenizers.ByteLevel.alphabet(),
    )  # fmt: skip
    made.train_from_iterator([*PAIRS, *PAIRS.values()], trainer)
    made.post_processor = tk.processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    return made


PAIR = {
    "vocab_size": 290, "d_model": 12, "encoder_layers": 2, "decoder_layers": 1, "encoder_attention_heads": 3, "decoder_attention_heads": 2,
    "encoder_ffn_dim": 20, "decoder_ffn_dim": 14, "max_position_embeddings": 90, "pad_token_id": 1, "eos_token_id": 2, "bos_token_id": 0,
    "decoder_start_token_id": 2, "forced_eos_token_id": None,
}  # fmt: skip
TURNS = {
    "rope_type": "llama3", "rope_theta": 900.0, "factor": 5.0, "low_freq_factor": 1.0, "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}  # fmt: skip
FEW = {
    "vocab_size": 290, "hidden_size": 12, "intermediate_size": 20, "num_hidden_layers": 2, "num_attention_heads": 3,
    "num_key_value_heads": 1, "bos_token_id": 0, "eos_token_id": [2, 7, 285], "pad_token_id": 1, "rope_parameters": TURNS,
    "max_position_embeddings": 190,
}  # fmt: skip
THEIRS = {
    "bart": lambda: hf.BartForConditionalGeneration(hf.BartConfig(**PAIR)),
    "mbart": lambda: hf.MBartForConditionalGeneration(hf.MBartConfig(**PAIR)),
    "pegasus": lambda: hf.PegasusForConditionalGeneration(hf.PegasusConfig(**PAIR)),
    "marian": lambda: hf.MarianMTModel(hf.MarianConfig(**PAIR)),
    "t5": lambda: hf.T5ForConditionalGeneration(
        hf.T5Config(
            vocab_size=290,
            d_model=12,
            d_kv=5,
            d_ff=20,
            num_layers=2,
            num_decoder_layers=1,
            num_heads=3,
            feed_forward_proj="gated-gelu",
            tie_word_embeddings=False,
            decoder_start_token_id=1,
            pad_token_id=1,
            eos_token_id=2,
        )
    ),
    "llama": lambda: hf.LlamaForCausalLM(hf.LlamaConfig(**FEW, attention_bias=True)),
    "qwen2": lambda: hf.Qwen2ForCausalLM(hf.Qwen2Config(**FEW, tie_word_embeddings=True)),
    "gpt2": lambda: hf.GPT2LMHeadModel(
        hf.GPT2Config(
            vocab_size=290, n_positions=190, n_embd=12, n_layer=2, n_head=3, bos_token_id=0, eos_token_id=2
        )
    ),
    "openai-gpt": lambda: hf.OpenAIGPTLMHeadModel(
        hf.OpenAIGPTConfig(vocab_size=290, n_positions=190, n_embd=12, n_layer=2, n_head=3)
    ),
}


@pytest.fixture(scope="module")
def theirs(tmp_path_factory):
    """(their model, its folder) of a family."""
    root, made = tmp_path_factory.mktemp("theirs"), {}

    def get(name: str):
        if name not in made:
            torch.manual_seed(5)
            model = THEIRS[name]().eval()
            with torch.no_grad():
                for weight in model.parameters():
                    if weight.requires_grad:
                        weight.copy_(torch.randn_like(weight) * 0.4 + (weight.ndim == 1))
            if name in ("bart", "mbart"):
                model.generation_config.forced_bos_token_id = 4
                model.generation_config.bad_words_ids = [[9], [12, 5]]
            if name == "openai-gpt":
                model.generation_config.eos_token_id = 2
            model.save_pretrained(root / name)
            byte_level().save(str(root / name / "tokenizer.json"))
            made[name] = model, root / name
        return made[name]

    return get


@pytest.mark.parametrize("name", THEIRS)
@pytest.mark.parametrize("beam", [1, 4])
def test_what_they_write_is_written_here_and_after_coming_back(name, beam, theirs, tmp_path):
    """64 tokens or a beam's, by the model as loaded and by their class from what was saved again."""
    model, folder = theirs(name)
    loaded = heedful.load(folder)
    heedful.save(loaded, tmp_path / "a")
    auto = hf.AutoModelForSeq2SeqLM if model.config.is_encoder_decoder else hf.AutoModelForCausalLM
    again, told = auto.from_pretrained(tmp_path / "a", output_loading_info=True)
    assert not any(told.values())
    tokenizer = hf.AutoTokenizer.from_pretrained(tmp_path / "a")
    new_tokens = 64 if beam == 1 else 17
    how = {"num_beams": beam, "do_sample": False, "max_new_tokens": new_tokens, "length_penalty": 0.0}
    ours = {"longest": new_tokens, "beam": beam} | ({} if beam == 1 else {"alpha": 0.0})
    pairs = model.config.is_encoder_decoder
    texts = list(PAIRS)[:2]
    answers = loaded.translate(texts, **ours) if pairs else loaded.generate(texts, **ours)
    for text, answer in zip(texts, answers, strict=True):
        given = torch.tensor([tokenizer(text).input_ids if pairs else loaded.wording.prompt([text])[0].ids])
        assert given.tolist() == [byte_level().encode(text).ids] if pairs else True
        for their in (model, again.eval()):
            row = their.generate(given, attention_mask=torch.ones_like(given), pad_token_id=1, **how)[
                0
            ].tolist()
            new = row[1:] if pairs else row[given.shape[1] :]
            assert answer.tokens == loaded.wording.names(new[: len(answer.tokens)])
            assert len(new) == len(answer.tokens) or set(new[len(answer.tokens) :]) == {1}


@pytest.mark.parametrize("name", THEIRS)
def test_scores_and_weights_go_there_and_back(name, theirs, tmp_path):
    model, folder = theirs(name)
    loaded = heedful.load(folder)
    heedful.save(loaded, tmp_path / "a")
    heedful.save(heedful.load(tmp_path / "a"), tmp_path / "b")
    same_files(tmp_path / "a", tmp_path / "b")
    auto = hf.AutoModelForSeq2SeqLM if model.config.is_encoder_decoder else hf.AutoModelForCausalLM
    again = auto.from_pretrained(tmp_path / "a").eval()
    for key, weight in model.state_dict().items():
        assert torch.equal(again.state_dict()[key], weight), key
    tokens = torch.randint(290, (3, 89), generator=torch.Generator().manual_seed(5))
    given = {"decoder_input_ids": tokens[:, :31]} if model.config.is_encoder_decoder else {}
    with torch.no_grad():
        expected = model(input_ids=tokens, **given).logits
        found = loaded.model(tokens, *given.values())
    scale = expected.abs().max()
    assert scale > 0.5 and (found - expected).abs().max() < 1e-5 * max(1, scale)
    said, before = (
        hf.GenerationConfig.from_pretrained(place).to_dict() for place in (tmp_path / "a", folder)
    )
    for key in (
        "eos_token_id",
        "bad_words_ids",
        "forced_bos_token_id",
        "decoder_start_token_id",
        "forced_eos_token_id",
    ):
        assert said.get(key) == before.get(key), key


# Decoders that classify

WIDE = {"vocab_size": 290, "n_positions": 40, "n_embd": 12, "n_layer": 2, "n_head": 3, "pad_token_id": 1}
CLASSIFIERS = {
    "gpt2": lambda: hf.GPT2ForSequenceClassification(hf.GPT2Config(**WIDE, num_labels=5)),
    "openai-gpt": lambda: hf.OpenAIGPTForSequenceClassification(hf.OpenAIGPTConfig(**WIDE, num_labels=3)),
    "llama": lambda: hf.LlamaForSequenceClassification(hf.LlamaConfig(**FEW, num_labels=2)),
    "qwen2": lambda: hf.Qwen2ForSequenceClassification(hf.Qwen2Config(**FEW, num_labels=4)),
}


@pytest.mark.parametrize("name", CLASSIFIERS)
def test_a_decoder_that_classifies_comes_in_and_goes_out(name, tmp_path):
    torch.manual_seed(7)
    model = spread(CLASSIFIERS[name]()).eval()
    model.save_pretrained(tmp_path / "theirs")
    byte_level().save(str(tmp_path / "theirs" / "tokenizer.json"))
    ours = heedful.load(tmp_path / "theirs")
    heedful.save(ours, tmp_path / "a")
    heedful.save(heedful.load(tmp_path / "a"), tmp_path / "b")
    assert (tmp_path / "a" / "model.safetensors").read_bytes() == (
        tmp_path / "b" / "model.safetensors"
    ).read_bytes()
    again, told = hf.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "a", output_loading_info=True
    )
    assert not any(told.values()) and type(again) is type(model)
    for key, weight in model.state_dict().items():
        assert torch.equal(again.state_dict()[key], weight), key
    tokenizer = hf.AutoTokenizer.from_pretrained(tmp_path / "a")
    texts = list(PAIRS)
    given = tokenizer(texts, padding=True, return_tensors="pt")
    with torch.no_grad():
        expected = again.eval()(**given).logits
        found = ours.model(given.input_ids, given.attention_mask.sum(1))
    assert expected.std() > 0.1 and (found - expected).abs().max() < 1e-5
    for label, row in zip(ours.classify(texts), expected.softmax(-1), strict=True):
        assert (
            label == ours.loaded.labels[int(row.argmax())] if ours.loaded.labels else str(int(row.argmax()))
        )
        assert label.probability == pytest.approx(float(row.max()), abs=1e-5)
    assert ours.embed(texts).shape == (len(texts), 12) and ours.look("the cat")


def test_a_run_that_classifies_by_a_decoder_leaves_with_its_bias_moved(small_run, tmp_path):
    """Theirs has no bias on its labels; the last norm's makes up for it."""
    model = heedful.load(small_run("classify-decoder"))
    with torch.no_grad():
        model.model.linear.bias.copy_(torch.tensor([0.7, -1.1]))
    heedful.save(model, tmp_path)
    theirs, told = hf.AutoModelForSequenceClassification.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(told.values())
    tokenizer = hf.AutoTokenizer.from_pretrained(tmp_path)
    texts = list(FILMS)
    given = tokenizer(texts, padding=True, return_tensors="pt")
    assert given.input_ids[0, 0] == 1 and int((given.input_ids == 2).sum()) == len(texts)
    with torch.no_grad():
        shares = theirs.eval()(**given).logits.softmax(-1)
    for label, row in zip(model.classify(texts), shares, strict=True):
        assert label == theirs.config.id2label[int(row.argmax())]
        assert label.probability == pytest.approx(float(row.max()), abs=1e-5)
    again = heedful.load(tmp_path)
    assert again.classify(texts) == model.classify(texts)
    assert (again.embed(texts, pooling="class") - model.embed(texts, pooling="class")).abs().max() > 0.01


def test_what_ends_a_text_is_no_padding_to_a_classifier(small_run, tmp_path, capsys):
    """Published GPT-2s have one token for everything; theirs would read the last one before it."""
    run = small_run("classify-decoder")
    loaded = heedful.load(run).loaded
    one = {**loaded.special, "pad": loaded.special["eos"], "bos": loaded.special["eos"]}
    write(dataclasses.replace(loaded, special=one), tmp_path)
    assert "pad_token_id" not in json.loads((tmp_path / "config.json").read_text())
    theirs = hf.AutoModelForSequenceClassification.from_pretrained(tmp_path).eval()
    ids_1T = torch.tensor([[1, 9, 7, 2]])
    with torch.no_grad():
        expected = loaded.model(ids_1T, Lengths(torch.tensor([4])))
        assert (theirs(ids_1T).logits - expected).abs().max() < 1e-5
    assert main(["info", str(run)]) == 0 and "leaves as hf" in capsys.readouterr().out


@pytest.mark.parametrize("tune", ["whole", "head"])
@pytest.mark.parametrize("pairs", [False, True])
def test_a_gpt2_of_theirs_fine_tuned_here_goes_back(pairs, tune, theirs, tmp_path):
    """What it reads before, between and after texts are tokens that its own tokenizer never had, if all of it learned."""
    _, folder = theirs("gpt2")
    shutil.copytree(folder, tmp_path / "gpt2")
    plain = byte_level()
    plain.post_processor = tk.processors.ByteLevel(trim_offsets=False)
    plain.save(str(tmp_path / "gpt2" / "tokenizer.json"))
    files = write_files(tmp_path)
    table = files["pairs.tsv" if pairs else "films.tsv"]
    settings = {"data.table": table, "data.valid_table": table, "train.steps": 4, "evaluate.every": 4}
    settings |= {"train.from_folder": str(tmp_path / "gpt2"), "train.batch_tokens": 128, "train.tune": tune}
    settings |= {"data.pair_column": "second"} if pairs else {}
    with torch.enable_grad():
        trainer.start(recipe.make("classify", settings=settings), tmp_path / "run", Quiet(), CPU)
    model = heedful.load(tmp_path / "run")
    heedful.save(model, tmp_path / "back")
    theirs_back, told = hf.AutoModelForSequenceClassification.from_pretrained(
        tmp_path / "back", output_loading_info=True
    )
    assert not any(told.values())
    assert theirs_back.config.vocab_size == 290 + 3 * (tune == "whole")
    tokenizer = hf.AutoTokenizer.from_pretrained(tmp_path / "back")
    texts = list(FILMS)
    seconds = texts[::-1] if pairs else None
    given = tokenizer(texts, seconds, padding=True, return_tensors="pt")
    with torch.no_grad():
        shares = theirs_back.eval()(**given).logits.softmax(-1)
    again = heedful.load(tmp_path / "back")
    for one in (model, again):
        for label, row in zip(one.classify(texts, seconds), shares, strict=True):
            assert label.probability == pytest.approx(float(row.max()), abs=1e-5)


def test_a_classifier_whose_formula_is_another_is_refused(small_run, tmp_path):
    model = heedful.load(small_run("classify-decoder"))
    other = dataclasses.replace(model.loaded, unlike="it reads its pairs in both orders")
    with pytest.raises(BadInput, match="it reads its pairs in both orders, as no model of Hugging Face does"):
        heedful.save(other, tmp_path / "saved")
    with torch.no_grad():
        model.model.linear.bias.copy_(torch.tensor([0.7, -1.1]))
        model.model.linear.weight[1] = model.model.linear.weight[0]
    with pytest.raises(BadInput, match="the head's bias cannot be put elsewhere"):
        heedful.save(model, tmp_path / "saved")
    assert not (tmp_path / "saved").exists()


def test_a_run_that_reads_pairs_in_both_orders_says_so(small_run, tmp_path):
    folder = tmp_path / "run"
    shutil.copytree(small_run("classify-decoder"), folder)
    said = json.loads((folder / "recipe.json").read_text())
    said["data"]["both_orders"] = True
    (folder / "recipe.json").write_text(json.dumps(said))
    with pytest.raises(BadInput, match="reads its pairs in both orders and judges the sum, as no model"):
        heedful.save(load(folder), tmp_path / "saved")


# What folders say in older words, or say wrong


def test_a_language_model_trained_here_goes_on_in_transformers(small_run, tmp_path):
    model = heedful.load(small_run("lm"))
    heedful.save(model, tmp_path)
    theirs = hf.AutoModelForCausalLM.from_pretrained(tmp_path)
    tokenizer = hf.AutoTokenizer.from_pretrained(tmp_path)
    given = tokenizer("the cat", return_tensors="pt")
    row = theirs.generate(**given, max_new_tokens=15)[0]
    assert tokenizer.decode(row, skip_special_tokens=True) == "the cat" + model.generate(
        "the cat", longest=15
    )
    said = hf.GenerationConfig.from_pretrained(tmp_path)
    assert (said.eos_token_id, said.max_length, said.do_sample) == (2, 24, False)
    assert "decoder_start_token_id" not in json.loads((tmp_path / "config.json").read_text())


def test_bart_without_its_head_has_a_bias_of_zeros(theirs, tmp_path):
    """facebook/bart-base is stored as a BartModel: names begin later, and nothing biases the scores."""
    model, folder = theirs("bart")
    model.model.save_pretrained(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    assert "shared.weight" in stored and "final_logits_bias" not in stored
    loaded = load(tmp_path)
    assert not loaded.model.decoder.head.bias.any()
    whole = load(folder)
    tokens = torch.randint(290, (2, 11))
    with torch.no_grad():
        shift = whole.model.decoder.head.bias
        assert torch.equal(loaded.model(tokens, tokens) + shift, whole.model(tokens, tokens))


@pytest.mark.parametrize("name", ["pegasus", "marian"])
def test_a_table_that_is_no_sinusoid_is_another_model(name, theirs, tmp_path):
    _, folder = theirs(name)
    heedful.save(heedful.load(folder), tmp_path)
    load(tmp_path)
    stored = load_file(tmp_path / "model.safetensors")
    stored["model.decoder.embed_positions.weight"][7, 3] += 0.3
    save_file(stored, tmp_path / "model.safetensors", {"format": "pt"})
    with pytest.raises(
        BadInput, match="model.decoder.embed_positions.weight is not what config.json makes it"
    ):
        load(tmp_path)


def altered(folder, place, **changes):
    """A copy of a folder whose config says something else; None takes a setting away."""
    shutil.copytree(folder, place)
    said = json.loads((place / "config.json").read_text()) | changes
    said = {key: value for key, value in said.items() if value is not None}
    (place / "config.json").write_text(json.dumps(said))
    return place


def test_rotary_settings_are_read_as_older_configs_spell_them(theirs, tmp_path):
    _, folder = theirs("llama")
    scaling = {key: value for key, value in TURNS.items() if key not in ("rope_theta", "rope_type")}
    older = {"rope_parameters": None, "rope_theta": 900.0, "rope_scaling": {"type": "llama3"} | scaling}
    assert load(altered(folder, tmp_path / "old", **older)).config == load(folder).config
    linear = {"rope_parameters": None, "rope_scaling": {"type": "linear", "factor": 4}}
    found = load(altered(folder, tmp_path / "linear", **linear)).config
    assert (found.stretch, found.stretch_factor, found.rotary_base) == ("linear", 4, 10000.0)
    plain = {"rope_parameters": None, "rope_scaling": None, "rope_theta": 5e5}
    found = load(altered(folder, tmp_path / "plain", **plain)).config
    assert (found.stretch, found.rotary_base) == ("none", 5e5)


@pytest.mark.parametrize(
    "name, said, words",
    [
        ("llama", {"rope_parameters": {"rope_type": "yarn", "factor": 4.0}}, "rope_type is 'yarn'"),
        ("llama", {"rope_parameters": TURNS | {"factor": 0.5}}, "stretched by 1 or more"),
        ("llama", {"rope_parameters": TURNS | {"low_freq_factor": 4.0}}, "from low to high"),
        ("llama", {"rope_parameters": TURNS | {"factor": "many"}}, "factor must be a finite number"),
        ("llama", {"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor is 0.5"),
        ("qwen2", {"use_sliding_window": True}, "use_sliding_window is True"),
        ("qwen2", {"layer_types": ["full_attention", "sliding_attention"]}, "names 'sliding_attention'"),
        ("bart", {"tie_word_embeddings": False}, "tie_word_embeddings is False"),
        ("bart", {"normalize_before": True}, "normalize_before is True"),
        ("mbart", {"normalize_before": False}, "normalize_before is False"),
        ("pegasus", {"static_position_embeddings": False}, "static_position_embeddings is False"),
    ],
)  # fmt: skip
def test_what_is_not_implemented_is_refused_by_name(name, said, words, theirs, tmp_path):
    _, folder = theirs(name)
    with pytest.raises(BadInput) as refused:
        load(altered(folder, tmp_path / "other", **said))
    assert words in str(refused.value)


def test_mistaken_settings_of_writing_are_left_out(theirs, tmp_path):
    _, folder = theirs("bart")
    shutil.copytree(folder, tmp_path / "odd")
    said = {"num_beams": "many", "max_length": 77, "bad_words_ids": 4, "eos_token_id": 2, "secret": [1] * 99}
    (tmp_path / "odd" / "generation_config.json").write_text(json.dumps(said))
    assert load(tmp_path / "odd").generation == {"max_length": 77, "eos_token_id": 2}


def test_t5_of_today_has_a_gate_and_a_head_of_its_own(theirs, tmp_path):
    """As google/flan-t5-small's config says it, which transformers cannot write any more."""
    _, folder = theirs("t5")
    stored = load_file(folder / "model.safetensors")
    torch.manual_seed(11)
    stored["lm_head.weight"] = torch.randn(290, 12)
    older = {"tie_word_embeddings": False, "dense_act_fn": "gelu_new", "is_gated_act": True}
    altered(folder, tmp_path / "flan", scale_decoder_outputs=None, **older)
    save_file(stored, tmp_path / "flan" / "model.safetensors", {"format": "pt"})
    loaded = heedful.load(tmp_path / "flan")
    config = loaded.config
    assert (config.gated, config.activation, config.tied, config.scaled) == (True, "gelu_tanh", False, False)
    heedful.save(loaded, tmp_path / "a")
    tokens = torch.randint(290, (2, 9))
    for place in ("flan", "a"):
        again = hf.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / place).eval()
        with torch.no_grad():
            expected = again(input_ids=tokens, decoder_input_ids=tokens).logits
            assert expected.std() > 0.5 and (loaded.model(tokens, tokens) - expected).abs().max() < 1e-5
    assert not torch.equal(again.lm_head.weight, again.shared.weight)
