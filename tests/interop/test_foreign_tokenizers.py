"""Tokenizers without a tokenizer.json give the token ids of transformers, and of sentencepiece."""

import json
import shutil
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import tokenizers as tk
import transformers as hf
from helpers.odd_texts import odd_texts
from helpers.sentencepiece_cases import (
    MADE,
    SPECIAL,
    THEIRS,
    both,
    made,  # noqa: F401 (fixtures)
    numbered,
    theirs_of_marian,
    train,
)
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import heedful
from heedful.interop.ctranslate2.vocabulary import tokenizers
from heedful.interop.hf.probes import corpus
from heedful.interop.hf.tokenizer import read_target, read_tokenizer

texts = st.lists(st.text(max_size=24), min_size=20, max_size=20)
thorough = settings(
    max_examples=100, derandomize=True, deadline=None, suppress_health_check=list(HealthCheck)
)


@pytest.mark.parametrize("name", THEIRS)
def test_every_family_gives_the_numbers_of_transformers(name, made):
    ours, theirs = both(made[0] / name, name)

    @thorough
    @given(texts)
    def compare(some):
        found = [one.ids for one in ours.encode_batch(some)]
        assert found == theirs(some)["input_ids"]

    compare()
    for text in corpus():
        found = ours.encode(text).ids
        assert found == theirs(text)["input_ids"], text
        assert ours.decode(found) == theirs.decode(found, skip_special_tokens=True)
        assert ours.encode(text, "a b").ids == theirs(text, "a b")["input_ids"]
    described, expected = json.loads(ours.to_str()), json.loads(theirs.backend_tokenizer.to_str())
    assert described["added_tokens"] == expected["added_tokens"]
    for part in ("normalizer", "pre_tokenizer", "post_processor", "decoder"):
        if name not in ("gpt2", "qwen2"):
            assert described[part] == expected[part]


def test_marian_gives_the_numbers_of_transformers_on_both_sides(made):
    folder = made[0] / "marian"
    size = len(json.loads((folder / "vocab.json").read_text()))
    reads, writes, theirs = read_tokenizer(folder, size), read_target(folder, size), theirs_of_marian(folder)
    for text in odd_texts(500):
        assert reads.encode(text).ids == theirs(text)["input_ids"], text
        assert writes.encode(text).ids == theirs(text_target=text)["input_ids"], text
    for text in [*corpus(), ">>fra<< the cat", ">>fra<<the cat", "１０～２０ ~ ～"]:
        assert reads.encode(text).ids == theirs(text)["input_ids"], text
        assert writes.encode(text).ids == theirs(text_target=text)["input_ids"], text
        for ours, found in (
            (reads, theirs(text)["input_ids"]),
            (reads, theirs(text_target=text)["input_ids"]),
        ):
            assert ours.decode(found).strip() == theirs.decode(found, skip_special_tokens=True)


def test_marian_tells_where_its_pieces_stand(made):
    text = "  the ca\u0301t  sat</s>>>fra<< on  the mat "
    row = read_tokenizer(made[0] / "marian").encode(text)
    assert "".join(row.tokens[:-1]) == "▁the▁cát▁sat</s>>>fra<<▁on▁the▁mat"
    parts = [text[a:b] for a, b in row.offsets[:-1]]
    assert "".join(parts).replace(" ", "") == text.replace(" ", "")
    assert ">>fra<<" in parts and "</s>" in parts and parts[0].startswith("t") and parts[-1].endswith("t")


def test_marians_files_beside_a_ctranslate2_model_are_its_tokenizer(made):
    folder = made[0] / "marian"
    size = len(json.loads((folder / "vocab.json").read_text()))
    config = SimpleNamespace(vocab=size, target_vocab=size, share_embeddings=True)
    reads, writes = tokenizers(folder, config, [["a"] * size], {})
    assert [reads.encode(text).ids for text in corpus()] == [
        read_tokenizer(folder, size).encode(text).ids for text in corpus()
    ]
    assert [writes.encode(text).ids for text in corpus()] == [
        read_target(folder, size).encode(text).ids for text in corpus()
    ]


def test_marian_may_have_a_vocabulary_for_each_side(made, tmp_path):
    root, processors = made
    shutil.copytree(root / "marian", tmp_path / "marian")
    for name, processor in (("vocab.json", "source"), ("target_vocab.json", "target")):
        (tmp_path / "marian" / name).write_text(json.dumps(numbered(processors[processor])))
    (tmp_path / "marian" / "tokenizer_config.json").write_text('{"separate_vocabs": true}')
    reads, writes = read_tokenizer(tmp_path / "marian"), read_target(tmp_path / "marian")
    theirs = theirs_of_marian(tmp_path / "marian")
    for text in corpus():
        assert reads.encode(text).ids == theirs(text)["input_ids"], text
        if "<pad>" not in text:  # of which theirs gives the number on the other side
            assert writes.encode(text).ids == theirs(text_target=text)["input_ids"], text


@pytest.mark.parametrize("shared", [True, False])
def test_marian_goes_out_as_it_came_in(shared, made, tmp_path):
    folder = shutil.copytree(made[0] / "marian", tmp_path / "marian")
    rows = [len(json.loads((folder / "vocab.json").read_text()))] * 2
    pad, eos = rows[0] - 1 if shared else 0, 0 if shared else 1
    if not shared:
        for n, (name, side) in enumerate((("vocab.json", "source"), ("target_vocab.json", "target"))):
            numbers = {"<pad>": 0} | {
                name: number + 1 for name, number in numbered(made[1][side], more=()).items()
            }
            (folder / name).write_text(json.dumps(numbers))
            rows[n] = len(numbers)
        (folder / "tokenizer_config.json").write_text('{"separate_vocabs": true}')
    config = hf.MarianConfig(
        vocab_size=rows[0],
        decoder_vocab_size=rows[1],
        share_encoder_decoder_embeddings=shared,
        d_model=12,
        encoder_layers=1,
        decoder_layers=1,
        encoder_attention_heads=3,
        decoder_attention_heads=2,
        encoder_ffn_dim=7,
        decoder_ffn_dim=9,
        max_position_embeddings=33,
        pad_token_id=pad,
        eos_token_id=eos,
        decoder_start_token_id=pad,
        forced_eos_token_id=eos,
    )
    hf.MarianMTModel(config).save_pretrained(folder)
    model = heedful.load(folder)
    assert "translate" in model.can and isinstance(
        model.translate("the cat sat", beam=1, max_new_tokens=5), str
    )
    heedful.save(model, tmp_path / "saved")
    theirs, again = theirs_of_marian(tmp_path / "saved"), heedful.load(tmp_path / "saved")
    for text in corpus():
        expected = model.tokenizer.encode(text).ids
        assert again.tokenizer.encode(text).ids == expected == theirs(text)["input_ids"]
        expected = model.target_tokenizer.encode(text).ids
        assert again.target_tokenizer.encode(text).ids == expected
        if shared or "<pad>" not in text:
            assert theirs(text_target=text)["input_ids"] == expected


DIFFERENT = {  # probes about which transformers and the sentencepiece package themselves disagree
    "t5": {"吾輩は", "고양이", "\u0085ne", "<s> </", "a</s>b", "<extra"},
    "llama": {" ", "  ", "     ", " a", "  a  b", "▁", "▁a ▁▁ ", " " * 6, "<s> </", "a</s>b"},
}


@pytest.mark.parametrize("name", DIFFERENT)
def test_where_transformers_agrees_with_sentencepiece_so_do_we(name, made):
    ours, processor = read_tokenizer(made[0] / name), made[1][name]
    different = [
        text for text in corpus() if ours.encode(text, add_special_tokens=False).ids != processor.encode(text)
    ]
    assert {text[:3] for text in different} <= {text[:3] for text in DIFFERENT[name]}
    assert len(different) <= len(DIFFERENT[name]) + 2


@pytest.mark.parametrize("rule", ["nmt_nfkc", "nfkc", "nmt_nfkc_cf", "identity"])
@pytest.mark.parametrize("squeezes, prefix", [(True, True), (False, False)])
def test_marian_cleans_texts_as_sentencepiece_does(rule, squeezes, prefix, tmp_path):
    how = {"normalization_rule_name": rule, "remove_extra_whitespaces": squeezes, "add_dummy_prefix": prefix}
    processor = train(tmp_path / "source.spm", vocab_size=353, **how)
    shutil.copy(tmp_path / "source.spm", tmp_path / "target.spm")
    (tmp_path / "vocab.json").write_text(json.dumps(numbered(processor)))
    ours = read_tokenizer(tmp_path)
    for text in [*corpus(), *odd_texts(300)]:
        clean, places = ours.clean(text)
        assert clean == processor.normalize(text), text
        assert len(places) == len(clean) + 1 and places == sorted(places) and places[-1] <= len(text)
        stands_in = ours.normalizer.normalize_str(text)
        if text in corpus() and "ﾊﾟ" not in text and "ᄀ\u1161" not in text:
            assert stands_in == clean, text


SETTINGS = [
    ("albert", {"do_lower_case": False}),
    ("albert", {"keep_accents": True}),
    ("deberta", {"do_lower_case": True}),
    ("deberta", {"split_by_punct": True}),
    ("llama", {"add_bos_token": True}),
    ("llama", {"legacy": True}),
    ("llama", {"add_bos_token": True, "add_eos_token": True}),
    ("llama", {"add_prefix_space": False}),
    ("t5", {"extra_ids": 7}),
    ("gpt2", {"add_bos_token": True}),
    ("gpt2", {"add_prefix_space": True}),
    ("roberta", {"add_prefix_space": True}),
    (
        "roberta",
        {"mask_token": {"content": "<mask>", "lstrip": True, "__type": "AddedToken", "normalized": False}},
    ),
    ("gpt2", {"pad_token": "<pad>", "extra_special_tokens": ["<a>", "<b>"]}),
    ("llama", {"pad_token": "<pad>"}),
    (
        "gpt2",
        {
            "added_tokens_decoder": {
                "331": {
                    "content": "<tool>",
                    "special": True,
                    "normalized": False,
                    "lstrip": False,
                    "rstrip": True,
                    "single_word": False,
                },
                "332": {
                    "content": "cat",
                    "special": False,
                    "normalized": True,
                    "lstrip": False,
                    "rstrip": False,
                    "single_word": True,
                },
            }
        },
    ),
]


@pytest.mark.parametrize("name, said", SETTINGS, ids=str)
def test_what_the_settings_say_is_done(name, said, made, tmp_path):
    folder = shutil.copytree(made[0] / name, tmp_path / name)
    ours, theirs = both(folder, name, **said)
    for text in [*corpus(), "the <tool>  cat<mask> catalogue <a><b>", "a <mask> b", "Cat,DOG! <pad>"]:
        assert ours.encode(text).ids == theirs(text)["input_ids"], text
        assert ours.encode(text, "b").ids == theirs(text, "b")["input_ids"], text


def test_older_files_add_and_name_tokens(made, tmp_path):
    folder = shutil.copytree(made[0] / "gpt2", tmp_path / "gpt2")
    (folder / "tokenizer_config.json").unlink()
    (folder / "added_tokens.json").write_text('{"<more>": 331, "<pad>": 332}')
    (folder / "special_tokens_map.json").write_text(
        '{"pad_token": "<pad>", "eos_token": {"content": "<|endoftext|>"}}'
    )
    ours, theirs = read_tokenizer(folder, 333), hf.GPT2Tokenizer.from_pretrained(folder)
    for text in [*corpus(), "a<more>b <pad> c"]:
        assert ours.encode(text).ids == theirs(text)["input_ids"], text
    assert ours.decode([331, 332]) == theirs.decode([331, 332], skip_special_tokens=True) == "<more>"


@pytest.mark.parametrize("lower", [True, False])
def test_settings_beside_a_tokenizer_json_decide_about_capitals(lower, tmp_path):
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "cat", "Cat", "été", "ete", "Été"]
    made = tk.Tokenizer(tk.models.WordPiece({name: n for n, name in enumerate(names)}, unk_token="[UNK]"))
    made.normalizer, made.pre_tokenizer = (
        tk.normalizers.BertNormalizer(lowercase=not lower),
        tk.pre_tokenizers.BertPreTokenizer(),
    )
    made.save(str(tmp_path / "tokenizer.json"))
    (tmp_path / "tokenizer_config.json").write_text(
        json.dumps({"do_lower_case": lower, "tokenizer_class": "BertTokenizer"})
    )
    ours, theirs = read_tokenizer(tmp_path), hf.BertTokenizer.from_pretrained(tmp_path)
    for text in ("Cat cat", "Été été ete"):
        assert ours.encode(text).ids == theirs(text, add_special_tokens=False)["input_ids"]


# The settings beside a tokenizer.json


def token(content, **flags):
    """An entry of added_tokens_decoder."""
    plain = {"lstrip": False, "rstrip": False, "normalized": False, "single_word": False, "special": True}
    return {"content": content, **plain, **flags}


BESIDE = {
    "nothing": {},
    "new tokens": {"more": [token("<tool>", rstrip=True), token("cat", special=False, single_word=True)]},
    "other flags": {"flags": {"lstrip": True, "rstrip": True}},
    "a padding token": {"pad_token": "<newpad>"},
    "special tokens": {"extra_special_tokens": ["<a>", "<b>"]},
    "a prefix": {"add_prefix_space": True},
}


@pytest.mark.parametrize("named", [True, False])
@pytest.mark.parametrize("what", BESIDE)
@pytest.mark.parametrize("name", ["llama", "roberta", "qwen2", "t5"])
def test_settings_beside_a_tokenizer_json_go_first(name, what, named, made, tmp_path):
    source = shutil.copytree(made[0] / name, tmp_path / "source")
    both(source, name)[1].save_pretrained(tmp_path)
    spec = json.loads((tmp_path / "tokenizer.json").read_text())
    if name == "llama" and not what.startswith("a"):  # as older files have it
        prepend, spaces = {"type": "Prepend", "prepend": "▁"}, {"type": "Replace", "content": "▁"}
        steps = [prepend, spaces | {"pattern": {"String": " "}}]
        spec |= {"pre_tokenizer": None, "normalizer": {"type": "Sequence", "normalizers": steps}}
        (tmp_path / "tokenizer.json").write_text(json.dumps(spec))
    said, given = json.loads((tmp_path / "tokenizer_config.json").read_text()), dict(BESIDE[what])
    listed = {
        one["id"]: {key: flag for key, flag in one.items() if key != "id"} for one in spec["added_tokens"]
    }
    count = len(hf.AutoTokenizer.from_pretrained(tmp_path))
    if what in ("new tokens", "other flags"):
        first = min(listed)
        listed[first] |= given.pop("flags", {})
        listed |= {count + n: one for n, one in enumerate(given.pop("more", []))}
        given["added_tokens_decoder"] = listed
    said |= given | ({} if named else {"tokenizer_class": "PreTrainedTokenizerFast"})
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(said))
    (tmp_path / "config.json").write_text(json.dumps({"model_type": name}))
    theirs = hf.AutoTokenizer.from_pretrained(tmp_path)
    ours = read_tokenizer(tmp_path, len(theirs) + 3)
    for text in [
        *odd_texts(60),
        "the <tool>  cat<mask> cats <a><b>",
        " <tool>x </s> y <s>z<unk> ",
        "<newpad>",
    ]:
        assert ours.encode(text).ids == theirs(text)["input_ids"], text


def test_settings_that_contradict_a_tokenizer_json_are_refused(made, tmp_path):
    source = shutil.copytree(made[0] / "albert", tmp_path / "source")
    both(source, "albert")[1].save_pretrained(tmp_path)
    said = json.loads((tmp_path / "tokenizer_config.json").read_text())
    (tmp_path / "tokenizer_config.json").write_text(json.dumps(said | {"keep_accents": True}))
    with pytest.raises(heedful.BadInput, match="keep_accents is true, and tokenizer.json does the opposite"):
        read_tokenizer(tmp_path)


def test_a_family_that_nobody_names_is_known_by_its_pieces(made, tmp_path):
    for name in MADE.keys() - {"camembert"}:  # which looks like XLM-RoBERTa
        shutil.copytree(made[0] / name, tmp_path / name)
        (tmp_path / name / "tokenizer_config.json").write_text(
            json.dumps({"tokenizer_class": THEIRS[name].__name__})
        )
        named = read_tokenizer(tmp_path / name).to_str()
        (tmp_path / name / "tokenizer_config.json").unlink(missing_ok=True)
        assert read_tokenizer(tmp_path / name).to_str() == named
    (tmp_path / "t5" / "tokenizer_config.json").write_text('{"tokenizer_class": "XLNetTokenizer"}')
    assert read_tokenizer(tmp_path / "t5") is None  # another family's would only be nearly right


def test_what_is_read_can_be_saved_and_read_again(made, tmp_path):
    for name in [*MADE, *SPECIAL, "marian"]:
        ours = read_tokenizer(made[0] / name)
        ours = getattr(ours, "shown", ours)
        (tmp_path / "tokenizer.json").write_text(ours.to_str())
        again = read_tokenizer(tmp_path)
        for text in corpus():
            assert again.encode(text).ids == ours.encode(text).ids


def test_no_other_package_is_needed(made):
    code = f"""
import sys
from pathlib import Path
from heedful.interop.hf.tokenizer import read_tokenizer
for name in {[*MADE, "marian"]}:
    assert read_tokenizer(Path({str(made[0])!r}) / name).encode("the cat").ids
print(sorted({{"sentencepiece", "transformers", "google.protobuf", "torch"}} & set(sys.modules)))
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


def test_the_probes_are_fixed_and_various():
    texts = corpus()
    assert texts == corpus() and len(set(texts)) == len(texts) > 100
    assert max(map(len, texts)) > 300 and all(Path(".") or text is not None for text in texts)
    for wanted in ("\0", "\u200d", "\ufeff", "\u3000", "\r\n", "e\u0301", "猫", "🇫🇷", "▁"):
        assert any(wanted in text for text in texts)
