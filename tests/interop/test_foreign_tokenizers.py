"""Tokenizers of Hugging Face folders without a tokenizer.json give the numbers of transformers, and of sentencepiece."""

import io
import json
import random
import shutil
import subprocess
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import pytest
import sentencepiece
import tokenizers as tk
import transformers as hf
from helpers.hostile_files import mutate
from helpers.refusals import at_most
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import heedful
from heedful.interop.ctranslate2.vocabulary import tokenizers
from heedful.interop.hf import sentencepiece as format
from heedful.interop.hf.probes import ACCENTS, EMOJI, PLAIN, SCRIPTS, corpus
from heedful.interop.hf.sentencepiece import read_pieces
from heedful.interop.hf.tokenizer import read_target, read_tokenizer

LINES = [text for text in (*PLAIN, *ACCENTS, *SCRIPTS, *EMOJI[:3]) if text] * 3
LINES += [f"the {a} {b} on the {c}, {n} times" for n, (a, b, c) in enumerate(zip(*[["cat", "dog", "bird", "mat"] * 6] * 3, strict=True))]  # fmt: skip


def train(path, **options):
    """A small SentencePiece model of the lines above."""
    out = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(LINES), model_writer=out, hard_vocab_limit=False, minloglevel=2, num_threads=1, **options
    )  # fmt: skip
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(out.getvalue())
    return sentencepiece.SentencePieceProcessor(model_proto=out.getvalue())


def byte_level(folder, special, size=331):
    """vocab.json and merges.txt of a small GPT-2 or RoBERTa."""
    tokenizer = tk.Tokenizer(tk.models.BPE())
    tokenizer.pre_tokenizer = tk.pre_tokenizers.ByteLevel(add_prefix_space=False)
    alphabet = tk.pre_tokenizers.ByteLevel.alphabet()
    trainer = tk.trainers.BpeTrainer(
        vocab_size=size, special_tokens=special, initial_alphabet=alphabet, show_progress=False
    )
    tokenizer.train_from_iterator(LINES, trainer)
    folder.mkdir()
    tokenizer.model.save(str(folder))


MADE = {
    "t5": ("spiece.model", {"pad_id": 0, "eos_id": 1, "unk_id": 2, "bos_id": -1, "vocab_size": 403}),
    "albert": (
        "spiece.model",
        {"pad_id": 0, "unk_id": 1, "bos_id": -1, "eos_id": -1, "vocab_size": 407}
        | {"control_symbols": ["[CLS]", "[SEP]"], "user_defined_symbols": ["[MASK]", "(", '"']},
    ),
    "deberta": (
        "spm.model",
        {"pad_id": 0, "bos_id": 1, "eos_id": 2, "unk_id": 3, "vocab_size": 401}
        | {"pad_piece": "[PAD]", "bos_piece": "[CLS]", "eos_piece": "[SEP]", "unk_piece": "[UNK]"},
    ),
    "llama": (
        "tokenizer.model",
        {"model_type": "bpe", "byte_fallback": True, "normalization_rule_name": "identity", "vocab_size": 709}
        | {"remove_extra_whitespaces": False, "split_digits": True, "allow_whitespace_only_pieces": True},
    ),
}
SPECIAL = {
    "roberta": ["<s>", "<pad>", "</s>", "<unk>", "<mask>"],
    "gpt2": ["<|endoftext|>"],
    "qwen2": ["<|endoftext|>"],
}
THEIRS = {
    "t5": hf.T5Tokenizer, "albert": hf.AlbertTokenizer, "deberta": hf.DebertaV2Tokenizer, "llama": hf.LlamaTokenizer,
    "roberta": hf.RobertaTokenizer, "gpt2": hf.GPT2Tokenizer, "qwen2": hf.Qwen2Tokenizer,
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """A folder of each family, and the sentencepiece package's own reader of it."""
    root, processors = tmp_path_factory.mktemp("made"), {}
    for name, (file, options) in MADE.items():
        processors[name] = train(root / name / file, **options)
    for name, special in SPECIAL.items():
        byte_level(root / name, special)
        (root / name / "tokenizer_config.json").write_text(
            json.dumps({"tokenizer_class": f"{name.title()}Tokenizer"})
        )
    marian = root / "marian"
    processors["source"] = train(marian / "source.spm", vocab_size=397)
    processors["target"] = train(marian / "target.spm", vocab_size=301, character_coverage=0.98)
    (marian / "vocab.json").write_text(
        json.dumps(numbered(processors["source"], processors["target"], more=[">>fra<<", "<pad>"]))
    )
    return root, processors


def numbered(*processors, more=("<pad>",)):
    """Marian's vocabulary: </s> and <unk> first, <pad> last, and in between the pieces of both files, mixed."""
    pieces = {p.id_to_piece(n) for p in processors for n in range(3, p.get_piece_size())} - {*more}
    names = ["</s>", "<unk>", *random.Random(7).sample(sorted(pieces), len(pieces)), *more]
    return {name: number for number, name in enumerate(names)}


def both(folder, name, **said):
    """Ours and theirs, of a folder that says so."""
    (folder / "tokenizer_config.json").write_text(
        json.dumps({"tokenizer_class": THEIRS[name].__name__} | said)
    )
    theirs = THEIRS[name].from_pretrained(folder)
    return read_tokenizer(folder, len(theirs)), theirs


def theirs_of_marian(folder):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it recommends sacremoses, which it then does not use
        return hf.MarianTokenizer.from_pretrained(folder)


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
    unusual = 0

    @thorough
    @given(texts)
    def compare(some):
        nonlocal unusual
        for text in some:
            if reads.encode(text).ids != theirs(text)["input_ids"]:
                unusual += 1

    compare()
    assert unusual <= 4, "marks upon marks in an unusual order are the only difference"
    for text in [*corpus(), ">>fra<< the cat", ">>fra<<the cat", "１０～２０ ~ ～"]:
        assert reads.encode(text).ids == theirs(text)["input_ids"], text
        assert writes.encode(text).ids == theirs(text_target=text)["input_ids"], text
        for ours, found in (
            (reads, theirs(text)["input_ids"]),
            (reads, theirs(text_target=text)["input_ids"]),
        ):
            assert ours.decode(found).strip() == theirs.decode(found, skip_special_tokens=True)


def test_marians_files_beside_a_ctranslate2_model_are_its_tokenizer(made):
    folder = made[0] / "marian"
    size = len(json.loads((folder / "vocab.json").read_text()))
    config = SimpleNamespace(vocab=size, target_vocab=size, shared=True)
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
        vocab_size=rows[0], decoder_vocab_size=rows[1], share_encoder_decoder_embeddings=shared, d_model=12, encoder_layers=1,
        decoder_layers=1, encoder_attention_heads=3, decoder_attention_heads=2, encoder_ffn_dim=7, decoder_ffn_dim=9,
        max_position_embeddings=33, pad_token_id=pad, eos_token_id=eos, decoder_start_token_id=pad,
        forced_eos_token_id=eos,
    )  # fmt: skip
    hf.MarianMTModel(config).save_pretrained(folder)
    model = heedful.load(folder)
    assert "translate" in model.can and isinstance(model.translate("the cat sat", beam=1, longest=5), str)
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
    different = [text for text in corpus() if ours.encode(text, add_special_tokens=False).ids != processor.encode(text)]  # fmt: skip
    assert {text[:3] for text in different} <= {text[:3] for text in DIFFERENT[name]}
    assert len(different) <= len(DIFFERENT[name]) + 2


@pytest.mark.parametrize("rule", ["nmt_nfkc", "nfkc", "nmt_nfkc_cf", "identity"])
@pytest.mark.parametrize("squeezes, prefix", [(True, True), (False, False)])
def test_marian_cleans_texts_as_sentencepiece_does(rule, squeezes, prefix, tmp_path):
    how = {"normalization_rule_name": rule, "remove_extra_whitespaces": squeezes, "add_dummy_prefix": prefix}
    processor = train(tmp_path / "source.spm", vocab_size=353, **how)
    shutil.copy(tmp_path / "source.spm", tmp_path / "target.spm")
    (tmp_path / "vocab.json").write_text(json.dumps(numbered(processor)))
    cleaning = read_tokenizer(tmp_path).normalizer
    allowed = {"ﾊﾟ"} if rule == "nmt_nfkc_cf" else set()
    for text in corpus():
        if not any(one in text for one in allowed) and "ᄀ\u1161" not in text:
            assert cleaning.normalize_str(text) == processor.normalize(text), text


SETTINGS = [
    ("albert", {"do_lower_case": False}), ("albert", {"keep_accents": True}), ("deberta", {"do_lower_case": True}),
    ("deberta", {"split_by_punct": True}), ("llama", {"add_bos_token": True}), ("llama", {"legacy": True}),
    ("llama", {"add_bos_token": True, "add_eos_token": True}), ("llama", {"add_prefix_space": False}), ("t5", {"extra_ids": 7}),
    ("gpt2", {"add_bos_token": True}), ("gpt2", {"add_prefix_space": True}), ("roberta", {"add_prefix_space": True}),
    ("roberta", {"mask_token": {"content": "<mask>", "lstrip": True, "__type": "AddedToken", "normalized": False}}),
    ("gpt2", {"pad_token": "<pad>", "extra_special_tokens": ["<a>", "<b>"]}), ("llama", {"pad_token": "<pad>"}),
    ("gpt2", {"added_tokens_decoder": {
        "331": {"content": "<tool>", "special": True, "normalized": False, "lstrip": False, "rstrip": True, "single_word": False},
        "332": {"content": "cat", "special": False, "normalized": True, "lstrip": False, "rstrip": False, "single_word": True}}}),
]  # fmt: skip


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


def test_a_family_that_nobody_names_is_known_by_its_pieces(made, tmp_path):
    for name in MADE:
        shutil.copytree(made[0] / name, tmp_path / name)
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


# The file itself


def test_the_file_is_read_as_sentencepiece_reads_it(made):
    from sentencepiece import sentencepiece_model_pb2

    root, processors = made
    for name, (file, _) in MADE.items():
        found, processor = read_pieces(root / name / file), processors[name]
        expected = sentencepiece_model_pb2.ModelProto.FromString((root / name / file).read_bytes())
        assert found.names == [piece.piece for piece in expected.pieces]
        assert found.scores == [piece.score for piece in expected.pieces]
        assert found.kinds == [piece.type for piece in expected.pieces]
        assert (found.model, found.unknown) == (expected.trainer_spec.model_type, processor.unk_id())
        assert found.charsmap == expected.normalizer_spec.precompiled_charsmap
        assert found.byte_fallback == expected.trainer_spec.byte_fallback
        assert found.squeezes == expected.normalizer_spec.remove_extra_whitespaces


def reads_or_says_why(folder):
    """True if it is read and texts go through it; False if it is refused in one sentence that names the folder."""
    try:
        with at_most(5):
            for tokenizer in (read_tokenizer(folder, 1000), read_target(folder, 1000)):
                if tokenizer is not None:
                    tokenizer.encode_batch(corpus())
    except heedful.BadInput as error:
        said = str(error)
        assert str(folder) in said and said.isprintable() and len(said) <= 2000
        return False
    return True


@pytest.mark.parametrize("name, file", [*((name, file) for name, (file, _) in MADE.items()), ("marian", "source.spm"), ("marian", "target.spm"), ("marian", "vocab.json")])  # fmt: skip
def test_a_damaged_file_is_read_or_refused(name, file, made, tmp_path):
    folder = shutil.copytree(made[0] / name, tmp_path / name)
    assert reads_or_says_why(folder)
    whole, rng = (folder / file).read_bytes(), random.Random(f"{name} {file}")
    body = whole if len(whole) < 100_000 else None
    results = []
    for turn in range(40):
        if body is None and turn % 2:  # most of the file is its table of characters: hit the pieces as well
            head = 6000
            damaged = mutate(whole[:head], rng) + whole[head:]
        else:
            damaged = mutate(whole, rng)
        (folder / file).write_bytes(damaged)
        results.append(reads_or_says_why(folder))
    assert results.count(False) > 8, "the damage is too gentle to test anything"


def field(number, value):
    """A field of a protocol buffer."""
    if isinstance(value, bytes):
        return whole_number(number << 3 | 2) + whole_number(len(value)) + value
    return whole_number(number << 3) + whole_number(value)


def whole_number(value):
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])


def piece(name, kind=1):
    return field(1, field(1, name) + field(3, kind))


START = piece(b"<unk>", 2) + piece(b"</s>", 3)
HOSTILE = {
    "nothing": (b"", "no pieces"),
    "a length beyond the end": (b"\x0a\xff\xff\xff\xff\x0f", "are left"),
    "a number without an end": (b"\xff" * 30, "ten bytes"),
    "a number cut short": (b"\x0a\xff", "no end"),
    "a group, which no such file has": (START + b"\x0b", "kind 3"),
    "pieces that are numbers": (field(1, 7), "fields or a text are expected"),
    "a name that is not text": (START + piece(b"\xff\xfe"), "UTF-8"),
    "a piece twice": (START + piece(b"a") * 2, "'a' twice"),
    "a piece without a name": (START + piece(b""), "no name"),
    "a piece of a megabyte": (START + piece(b"a" * (1 << 20)), "256 bytes"),
    "a kind of piece that is none": (START + piece(b"a", 9), "kind 9"),
    "a score that is none": (START + field(1, field(1, b"a") + b"\x15\x00\x00\xc0\x7f"), "nan"),
    "no piece for the unknown": (piece(b"a"), "unknown"),
    "a model of words": (START + field(2, field(3, 3)), "kind 3"),
    "spaces after words": (START + field(2, field(24, 1)), "after words"),
    "spaces left as they are": (START + field(3, field(5, 0)), "leaves spaces"),
    "a table that is too short": (START + field(3, field(2, b"abc")), "table"),
    "a table that leads out of itself": (START + field(3, field(2, (1024).to_bytes(4, "little") + b"\x00\xfc\xff\x7f" * 256)), "leads out"),
    "a table that leads into nothing": (START + field(3, field(2, (1024).to_bytes(4, "little") + b"\x00\x01\x00\x00" * 256 + b"a\0")), "leads into nothing"),
    "a table that is not text": (START + field(3, field(2, (1024).to_bytes(4, "little") + bytes(1024) + b"\xff")), "UTF-8"),
}  # fmt: skip


@pytest.mark.parametrize("what", HOSTILE)
def test_a_hostile_file_is_refused(what, tmp_path):
    content, words = HOSTILE[what]
    (tmp_path / "spiece.model").write_bytes(content)
    with at_most(2), pytest.raises(heedful.BadInput, match=words) as told:
        read_tokenizer(tmp_path)
    assert str(tmp_path / "spiece.model") in str(told.value)


MEMORY = """
import pathlib, resource, sys
import heedful
from heedful.interop.hf.tokenizer import read_tokenizer

folder = pathlib.Path(sys.argv[1])
read_tokenizer(folder / "honest").encode("the cat")
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
for path in sorted(folder.glob("hostile*")):
    try:
        read_tokenizer(path)
        sys.exit(f"{path} was read")
    except heedful.BadInput as error:
        assert str(path) in str(error)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024 - before)
"""


def test_a_bomb_takes_no_memory(made, tmp_path):
    shutil.copytree(made[0] / "t5", tmp_path / "honest")
    words = [f"{n:b}"[1:].encode() for n in range(2, 1 << 17)]  # all words of two letters
    bombs = [
        START
        + b"".join(map(piece, words))
        + field(2, field(3, 2)),  # each piece is made of others in many ways
        b"\x0a\x02\x0a\x00" * (1 << 20),
        START + b"".join(piece(random.Random(n).randbytes(60).hex().encode()) for n in range(20_000)),
    ]
    for number, bomb in enumerate(bombs):
        (tmp_path / f"hostile-{number}").mkdir()
        (tmp_path / f"hostile-{number}" / "tokenizer.model").write_bytes(bomb)
    (tmp_path / "hostile-holes").mkdir()
    with open(tmp_path / "hostile-holes" / "tokenizer.model", "wb") as file:
        file.truncate(200 << 20)
    done = subprocess.run([sys.executable, "-c", MEMORY, tmp_path], capture_output=True, text=True, timeout=60, check=False)  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= 350


def test_the_limits_leave_room_for_what_is_published():
    assert format.NODES >= 1_000_000 and format.MERGES > 500_000 and format.LIMIT > 4_300_000


TOLD = {
    "added tokens that are a list": '{"added_tokens_decoder": []}',
    "an added token of no name": '{"added_tokens_decoder": {"700": {"content": ""}}}',
    "an added token that is a number": '{"added_tokens_decoder": {"700": 7}}',
    "a number that is a word": '{"added_tokens_decoder": {"x": {"content": "a"}}}',
    "a number that is not due": '{"added_tokens_decoder": {"900": {"content": "<new>"}}}',
    "a name that is a list": '{"bos_token": ["a"]}',
    "a flag that is a word": '{"add_bos_token": "yes"}',
    "special tokens that are a word": '{"extra_special_tokens": "abc"}',
    "not JSON": "{",
}


def test_very_many_added_tokens_are_refused_soon(made, tmp_path):
    folder = shutil.copytree(made[0] / "llama", tmp_path / "llama")
    for count, words in ((100_000, "at most 65536"), (60_000, "only 1000 tokens")):
        added = {str(709 + n): {"content": f"<{n}>"} for n in range(count)}
        (folder / "tokenizer_config.json").write_text(json.dumps({"added_tokens_decoder": added}))
        with at_most(5), pytest.raises(heedful.BadInput, match=words):
            read_tokenizer(folder, 1000)


@pytest.mark.parametrize("what", TOLD)
def test_broken_settings_are_refused(what, made, tmp_path):
    folder = shutil.copytree(made[0] / "llama", tmp_path / "llama")
    (folder / "tokenizer_config.json").write_text(TOLD[what])
    with pytest.raises(heedful.BadInput, match=r"tokenizer_config\.json"):
        read_tokenizer(folder, 1000)


@pytest.mark.parametrize("name", ["spiece.model", "spm.model", "tokenizer.model"])
def test_links_that_lead_out_and_pipes_are_not_read(name, made, tmp_path):
    import os

    (tmp_path / "folder").mkdir()
    path = tmp_path / "folder" / name
    os.mkfifo(path)
    with at_most(2), pytest.raises(heedful.BadInput, match="regular"):
        read_tokenizer(path.parent)
    path.unlink()
    path.symlink_to(made[0] / "t5" / "spiece.model")
    with pytest.raises(heedful.BadInput, match="leads out"):
        read_tokenizer(path.parent)


def test_the_probes_are_fixed_and_various():
    texts = corpus()
    assert texts == corpus() and len(set(texts)) == len(texts) > 100
    assert max(map(len, texts)) > 300 and all(Path(".") or text is not None for text in texts)
    for wanted in ("\0", "\u200d", "\ufeff", "\u3000", "\r\n", "e\u0301", "猫", "🇫🇷", "▁"):
        assert any(wanted in text for text in texts)
