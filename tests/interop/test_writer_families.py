"""Families that generate text, to and from Hugging Face: the same scores, weights, texts and endings."""

import json
import shutil

import pytest
import torch
import transformers as hf
from helpers.runs import CPU, Quiet
from helpers.small_runs import (
    PAIRS,
    small_run,  # noqa: F401 (fixtures)
)
from helpers.writer_cases import (
    LONGROPE,
    THEIRS,
    TURNS,
    _no_progress_bars,  # noqa: F401 (fixtures)
    byte_level,
    same_files,
    theirs,  # noqa: F401 (fixtures)
)
from safetensors.torch import load_file, save_file

import heedful
from heedful.errors import BadInput
from heedful.interop.formats import load
from heedful.runs import trainer
from heedful.tasks import recipe


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
    ours = {"max_new_tokens": new_tokens, "beam": beam} | ({} if beam == 1 else {"length_alpha": 0.0})
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


# What folders say in older words, or say wrong


def test_a_language_model_trained_here_goes_on_in_transformers(small_run, tmp_path):
    model = heedful.load(small_run("lm"))
    heedful.save(model, tmp_path)
    theirs = hf.AutoModelForCausalLM.from_pretrained(tmp_path)
    tokenizer = hf.AutoTokenizer.from_pretrained(tmp_path)
    given = tokenizer("the cat", return_tensors="pt")
    row = theirs.generate(**given, max_new_tokens=15)[0]
    assert tokenizer.decode(row, skip_special_tokens=True) == "the cat" + model.generate(
        "the cat", max_new_tokens=15
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


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_a_model_saved_in_half_precision_keeps_its_rounded_sinusoids(dtype, theirs, tmp_path):
    _, folder = theirs("pegasus")
    auto = hf.AutoModelForSeq2SeqLM
    auto.from_pretrained(folder, dtype=dtype).save_pretrained(tmp_path / "half")
    model = auto.from_pretrained(tmp_path / "half", dtype=torch.float32).eval()
    loaded = load(tmp_path / "half")
    heedful.save(loaded, tmp_path / "again")
    tokens = torch.randint(290, (2, 23), generator=torch.Generator().manual_seed(3))
    with torch.no_grad():
        expected = model(input_ids=tokens, decoder_input_ids=tokens[:, :7]).logits
        for one in (loaded, load(tmp_path / "again")):
            assert (one.model(tokens, tokens[:, :7]) - expected).abs().max() < 1e-5 * expected.abs().max()
    stored = load_file(tmp_path / "half" / "model.safetensors")
    table = [key for key in stored if "embed_positions" in key]
    assert table and loaded.config.sinusoid_precision == str(dtype).removeprefix("torch.")
    save_file(
        {key: tensor for key, tensor in stored.items() if key not in table},
        tmp_path / "half" / "model.safetensors",
        {"format": "pt"},
    )
    assert load(tmp_path / "half").config.sinusoid_precision == "float32"  # left out, they are computed


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
    assert (found.rope_scaling, found.rope_factor, found.rotary_base) == ("linear", 4, 10000.0)
    plain = {"rope_parameters": None, "rope_scaling": None, "rope_theta": 5e5}
    found = load(altered(folder, tmp_path / "plain", **plain)).config
    assert (found.rope_scaling, found.rotary_base) == ("none", 5e5)


def test_the_original_context_that_a_config_states_beside_its_rotary_settings_counts(theirs, tmp_path):
    """As transformers does: it prefers the one outside."""
    _, folder = theirs("qwen2")
    yarn = {"rope_type": "yarn", "rope_theta": 900.0, "factor": 3.0, "original_max_position_embeddings": 12}
    said = {"rope_parameters": yarn, "original_max_position_embeddings": 21}
    found = load(altered(folder, tmp_path / "both", **said))
    assert (found.config.rope_original_context, found.config.rope_scaling) == (21, "yarn")
    tokens = torch.randint(290, (2, 33))
    with torch.no_grad():
        expected = hf.AutoModelForCausalLM.from_pretrained(tmp_path / "both").eval()(tokens).logits
        assert (found.model(tokens) - expected).abs().max() < 1e-5 * max(1, expected.abs().max())
    older = {"rope_parameters": None, "rope_theta": 900.0, "rope_scaling": {**yarn, "rope_type": None}}
    older["rope_scaling"] |= {"type": "yarn", "original_max_position_embeddings": 21}
    older["rope_scaling"].pop("rope_type")
    assert load(altered(folder, tmp_path / "older", **older)).config == found.config


def test_a_text_beyond_longropes_original_context_is_refused(theirs, tmp_path):
    """transformers then uses other factors for the whole text."""
    model, folder = theirs("phi3")
    ours = heedful.load(folder)
    tokens = torch.randint(290, (1, 191))
    with torch.no_grad():
        expected = model(tokens[:, :190]).logits
        assert (ours.model(tokens[:, :190]) - expected).abs().max() < 1e-5 * expected.abs().max()
        with pytest.raises(ValueError, match="191 tokens does not fit LongRoPE's original context of 190"):
            ours.model(tokens)
    with pytest.raises(BadInput, match="passes LongRoPE's original context of 190 tokens: shorten it"):
        ours.generate("the cat " * 200)
    for how in ({}, {"beam": 2}):
        with pytest.raises(BadInput, match="tokens passes .* or lower max_new_tokens"):
            ours.generate("the cat", max_new_tokens=250, min_new_tokens=240, **how)


def test_a_decoder_that_sees_what_comes_is_not_trained_to_predict_it(theirs, tmp_path):
    _, folder = theirs("llama that sees all")
    (tmp_path / "a.txt").write_text("the cat sat on the mat\n" * 9)
    settings = {"data.text": str(tmp_path / "a.txt"), "train.from": str(folder)}
    with pytest.raises(BadInput, match="is_causal: false.* cannot learn to predict the next token"):
        trainer.start(recipe.make("lm", settings=settings), tmp_path / "run", Quiet(), CPU)


@pytest.mark.parametrize(
    "name, said, words",
    [
        ("llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 4.0}}, "rope_type is 'dynamic'"),
        ("llama", {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1}}, "YaRN needs more than 1"),
        ("llama", {"sliding_window": 7}, "a llama has no sliding_window"),
        ("mistral", {"layer_types": ["full_attention"] * 2}, 'set model_type to "ministral"'),
        ("gemma3", {"rope_parameters": {"rope_type": "default"}}, "describe full_attention and sliding"),
        ("gemma3", {"final_logit_softcapping": 30.0}, "final_logit_softcapping is 30.0"),
        ("phi3", {"rope_parameters": LONGROPE | {"long_factor": [1.0, 2.0]}}, "as many short and long"),
        ("phi3", {"rope_parameters": LONGROPE | {"short_factor": 7}}, "short_factor must be a list"),
        ("phi3", {"resid_pdrop": 0.1}, "resid_pdrop is 0.1"),
        ("bart", {"is_causal": False}, "is_causal is False"),
        ("llama", {"rope_parameters": TURNS | {"factor": 0.5}}, "stretched by 1 or more"),
        ("llama", {"rope_parameters": TURNS | {"low_freq_factor": 4.0}}, "from low to high"),
        ("llama", {"rope_parameters": TURNS | {"factor": "many"}}, "factor must be a finite number"),
        ("llama", {"rope_parameters": {"partial_rotary_factor": 0.5}}, "partial_rotary_factor is 0.5"),
        ("qwen2", {"layer_types": ["full_attention", "sliding_attention"]}, "no sliding_window says how far"),
        ("qwen2", {"layer_types": ["full_attention"]}, "a list of 2 names"),
        ("qwen2", {"layer_types": ["full_attention", "chunked_attention"]}, "is 'chunked_attention'"),
        ("bart", {"tie_word_embeddings": False}, "tie_word_embeddings is False"),
        ("bart", {"normalize_before": True}, "normalize_before is True"),
        ("mbart", {"normalize_before": False}, "normalize_before is False"),
        ("pegasus", {"static_position_embeddings": False}, "static_position_embeddings is False"),
    ],
)
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
    assert (config.gated, config.activation, config.tie_embeddings, config.scale_output) == (
        True,
        "gelu_tanh",
        False,
        False,
    )
    heedful.save(loaded, tmp_path / "a")
    tokens = torch.randint(290, (2, 9))
    for place in ("flan", "a"):
        again = hf.AutoModelForSeq2SeqLM.from_pretrained(tmp_path / place).eval()
        with torch.no_grad():
            expected = again(input_ids=tokens, decoder_input_ids=tokens).logits
            assert expected.std() > 0.5 and (loaded.model(tokens, tokens) - expected).abs().max() < 1e-5
    assert not torch.equal(again.lm_head.weight, again.shared.weight)
