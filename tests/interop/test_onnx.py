"""heedful export --to onnx: graphs for any batch and length that compute what the model computes."""

import json
import shutil
import struct
from dataclasses import replace

import numpy as np
import onnx
import onnxruntime
import pytest
import torch
from helpers import tiny

import heedful
from heedful.certify.compare import compared
from heedful.cli.main import main
from heedful.decode.greedy import greedy
from heedful.decode.step import step_of
from heedful.interop.formats import load
from heedful.interop.loaded import Loaded
from heedful.interop.onnx import graph, modules
from heedful.interop.onnx import write as to_onnx
from heedful.interop.onnx.reopen import reopen
from heedful.models import bert, family, gpt2, llama, transformer, vit
from heedful.models.base.shells import classifier
from heedful.parts.places import At, Lengths
from heedful.parts.view import left_padded, right_padded

VOCAB, PAD, EOS = 29, 0, 1
MODELS = {
    "gpt2": (gpt2, gpt2.GPT2Config(vocab=VOCAB, context=31, layers=2, width=12, heads=3, ffn_width=20)),
    "llama": (
        llama,
        llama.LlamaConfig(
            vocab=VOCAB, context=31, layers=1, width=12, heads=6, kv_heads=2, key_width=4, ffn_width=20
        ),
    ),
    "transformer": (
        transformer,
        transformer.TransformerConfig(
            vocab=VOCAB,
            target_vocab=VOCAB,
            layers=2,
            decoder_layers=1,
            width=12,
            heads=3,
            decoder_heads=2,
            ffn_width=20,
            decoder_ffn_width=14,
            sinusoid_layout="halves",
            output_bias=True,
        ),
    ),
    "bert": (
        bert,
        bert.BertConfig(
            vocab=VOCAB, context=31, layers=1, width=12, heads=3, ffn_width=20, prediction_heads=("span",)
        ),
    ),
    "vit": (
        vit,
        vit.ViTConfig(
            image_size=12,
            patch_size=4,
            layers=1,
            width=12,
            heads=3,
            ffn_width=20,
            prediction_heads=("class_token", "pooled"),
        ),
    ),
}


def test_an_encoder_that_tells_no_segments_apart_is_not_asked_for_them():
    for several, asked in ((1, False), (2, True)):
        config = replace(MODELS["bert"][1], segments=several)
        assert ("token_type_ids" in modules.heads_graph(bert.build(config)).inputs) == asked


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """(what was exported, its folder) of a tiny model, by the command itself."""
    folder = tmp_path_factory.mktemp("onnx")

    def give(name):
        file, config = MODELS[name]
        if not (folder / name).exists():
            model = tiny.build((file, config), torch.float32)
            special = {"pad": PAD, "eos": EOS} | ({"decoder_start": PAD} if name == "transformer" else {})
            heedful.save(
                Loaded(name, config, model, None, {} if name == "vit" else special), folder / f"{name}-hf"
            )
            words = ["export", str(folder / f"{name}-hf"), str(folder / name), "--to", "onnx"]
            with pytest.MonkeyPatch.context() as patch:
                if name == "vit":
                    patch.setattr(graph, "LARGEST", 0)  # as if it were too large for one file
                assert main(words) == 0
        return load(folder / f"{name}-hf"), folder / name

    return give


def session(path):
    made = onnxruntime.SessionOptions()
    made.intra_op_num_threads = 1
    return onnxruntime.InferenceSession(str(path), made)


def run(opened, **given):
    out = opened.run(None, {name: value.numpy() for name, value in given.items()})
    names = [value.name for value in opened.get_outputs()]
    return dict(zip(names, map(torch.from_numpy, out), strict=True))


def shapes(values):
    return {value.name: value.shape for value in values}


def mask_of(positions):
    return (positions >= 0).long()


def close(a, b):
    assert a.shape == b.shape and b.abs().max() > 1e-2
    assert (a - b).abs().max() < 1e-5 * max(1, b.abs().max())


# Decoders


def empty_past(opened, rows):
    past = {name: shape for name, shape in shapes(opened.get_inputs()).items() if name.startswith("past")}
    return {name: torch.zeros(rows, shape[1], 0, shape[3]) for name, shape in past.items()}


def test_a_decoder_has_optimums_names_and_free_sizes(exported):
    _, folder = exported("gpt2")
    opened = session(folder / "model.onnx")
    past = [f"past_key_values.{layer}.{part}" for layer in (0, 1) for part in ("key", "value")]
    inputs, outputs = shapes(opened.get_inputs()), shapes(opened.get_outputs())
    assert list(inputs) == ["input_ids", "attention_mask", *past]
    assert list(outputs) == ["logits", *(name.replace("past_key_values", "present") for name in past)]
    assert inputs["input_ids"] == ["batch_size", "sequence_length"]
    assert inputs["attention_mask"] == ["batch_size", "total_sequence_length"]
    assert inputs[past[0]] == ["batch_size", 3, "past_sequence_length", 4]
    assert outputs["logits"] == ["batch_size", "sequence_length", VOCAB]
    assert outputs["present.1.value"] == ["batch_size", 3, "total_sequence_length", 4]
    assert {"config.json", "generation_config.json", "model.onnx", "parity.json"} == {
        p.name for p in folder.iterdir()
    }
    assert onnx.load(folder / "model.onnx").opset_import[0].version == 18


@pytest.mark.parametrize("B, T", [(1, 4), (3, 9)])
@pytest.mark.parametrize("pad", [left_padded, right_padded])
@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_a_decoder_says_the_same_at_any_size_whatever_is_padded(name, pad, B, T, exported):
    ours, folder = exported(name)
    opened = session(folder / "model.onnx")
    tokens = torch.randint(VOCAB, (B, T), generator=torch.Generator().manual_seed(B))
    positions = pad(torch.tensor([T, 2, 5][:B]), T)
    out = run(opened, input_ids=tokens, attention_mask=mask_of(positions), **empty_past(opened, B))
    with torch.no_grad():
        expected = ours.model(tokens, At(positions))
    close(out["logits"][positions >= 0], expected[positions >= 0])


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_token_by_token_through_the_cache_is_greedy_search(name, exported):
    """Prompts that end together, padded before, as Optimum's own generate feeds them."""
    ours, folder = exported(name)
    opened = session(folder / "model.onnx")
    tokens = torch.randint(2, VOCAB, (3, 6), generator=torch.Generator().manual_seed(7))
    lengths = torch.tensor([6, 2, 4])
    mask, past, fed, written = mask_of(left_padded(lengths, 6)), empty_past(opened, 3), tokens, []
    for _ in range(8):
        out = run(opened, input_ids=fed, attention_mask=mask, **past)
        fed = out["logits"][:, -1:].argmax(-1)
        written.append(fed[:, 0])
        mask = torch.cat([mask, torch.ones_like(fed)], 1)
        past = {name: out[name.replace("past_key_values", "present")] for name in past}
    with torch.no_grad():
        for row, n in enumerate(lengths.tolist()):
            expected = greedy(step_of(ours.model), tokens[row : row + 1, 6 - n :], longest=8)[0].tokens
            assert torch.stack(written)[:, row].tolist() == expected


# Encoder-decoders


def test_an_encoder_decoder_has_optimums_files_and_names(exported):
    _, folder = exported("transformer")
    found = {path.name: session(path) for path in folder.glob("*.onnx")}
    assert set(found) == {"encoder_model.onnx", "decoder_model.onnx", "decoder_with_past_model.onnx"}
    first, then = found["decoder_model.onnx"], found["decoder_with_past_model.onnx"]
    assert list(shapes(first.get_inputs())) == [
        "encoder_attention_mask",
        "input_ids",
        "encoder_hidden_states",
    ]
    kinds = [f"0.{side}.{part}" for side in ("decoder", "encoder") for part in ("key", "value")]
    assert list(shapes(first.get_outputs())) == ["logits", *(f"present.{kind}" for kind in kinds)]
    past = [f"past_key_values.{kind}" for kind in kinds]
    assert list(shapes(then.get_inputs())) == ["encoder_attention_mask", "input_ids", *past]
    own = [f"present.{kind}" for kind in kinds if "decoder" in kind]
    assert list(shapes(then.get_outputs())) == ["logits", *own]


@pytest.mark.parametrize("B, S", [(1, 3), (3, 8)])
def test_a_translation_token_by_token_is_greedy_search(B, S, exported):
    ours, folder = exported("transformer")
    encoder, first, then = (
        session(folder / f"{name}.onnx")
        for name in ("encoder_model", "decoder_model", "decoder_with_past_model")
    )
    source = torch.randint(2, VOCAB, (B, S), generator=torch.Generator().manual_seed(B))
    lengths = torch.tensor([S, 2, 5][:B])
    mask = mask_of(right_padded(lengths, S))
    read = run(encoder, input_ids=source, attention_mask=mask)["last_hidden_state"]
    written = torch.full((B, 1), PAD)
    out = run(first, encoder_attention_mask=mask, input_ids=written, encoder_hidden_states=read)
    past = {
        name.replace("present", "past_key_values"): value for name, value in out.items() if name != "logits"
    }
    for _ in range(7):
        new = out["logits"][:, -1:].argmax(-1)
        written = torch.cat([written, new], 1)
        out = run(then, encoder_attention_mask=mask, input_ids=new, **past)
        past |= {name.replace("present", "past_key_values"): out[name] for name in out if name != "logits"}
    with torch.no_grad():
        step = step_of(ours.model, source, lengths)
        expected = greedy(step, torch.full((B, 1), PAD), longest=7)
        whole = ours.model(source, written, Lengths(lengths))
    assert [row[1:] for row in written.tolist()] == [hypothesis.tokens for hypothesis in expected]
    close(out["logits"][:, -1], whole[:, -1])
    several = run(first, encoder_attention_mask=mask, input_ids=written, encoder_hidden_states=read)
    close(several["logits"], whole)


# Encoders, classifiers, pictures


@pytest.mark.parametrize("B, T", [(1, 4), (3, 9)])
def test_an_encoder_says_what_its_head_says(B, T, exported):
    ours, folder = exported("bert")
    opened = session(folder / "model.onnx")
    made = torch.Generator().manual_seed(T)
    tokens, segments = (torch.randint(most, (B, T), generator=made) for most in (VOCAB, 2))
    lengths = torch.tensor([T, 2, 5][:B])
    mask = mask_of(right_padded(lengths, T))
    out = run(opened, input_ids=tokens, attention_mask=mask, token_type_ids=segments)
    assert list(out) == ["start_logits", "end_logits"]
    with torch.no_grad():
        expected = ours.model(tokens, Lengths(lengths), segments)["span"]
    close(torch.stack(list(out.values()), -1)[mask > 0], expected[mask > 0])


def test_pictures(exported):
    ours, folder = exported("vit")
    opened = session(folder / "model.onnx")
    for B in (1, 4):
        images = torch.randn(B, 3, 12, 12, generator=torch.Generator().manual_seed(B))
        out = run(opened, pixel_values=images)
        assert list(out) == ["last_hidden_state", "pooler_output"]
        with torch.no_grad():
            close(out["last_hidden_state"], ours.model.encoder(images))
            close(out["pooler_output"], ours.model(images)["pooled"])


def test_a_decoder_that_classifies_reads_its_last_real_token(tmp_path):
    file, config = MODELS["gpt2"]
    config = replace(config, layers=1)
    torch.manual_seed(3)
    model = classifier(tiny.build((file, config), torch.float32), config, 5).eval()
    torch.nn.init.normal_(model.linear.weight)
    to_onnx.write(Loaded("gpt2", config, model, None, {"eos": EOS, "pad": PAD}), tmp_path)
    opened = session(tmp_path / "model.onnx")
    for T in (4, 7):
        tokens, lengths = torch.randint(VOCAB, (3, T)), torch.tensor([T, 2, 3])
        with torch.no_grad():
            expected = model(tokens, Lengths(lengths))
        out = run(opened, input_ids=tokens, attention_mask=mask_of(right_padded(lengths, T)))
        close(out["logits"], expected)
        turned = torch.stack([row.roll(T - n) for row, n in zip(tokens, lengths.tolist(), strict=True)])
        out = run(opened, input_ids=turned, attention_mask=mask_of(left_padded(lengths, T)))
        close(out["logits"], expected)


# Files


def test_one_number_changed_in_the_graph_is_found_and_kept_aside(exported, tmp_path, capsys, monkeypatch):
    ours, folder = exported("gpt2")
    row = ours.model.stack.blocks[1].feed_forward.layer.up.bias[2:5].tolist()

    def write(loaded, aside, kind):
        shutil.copytree(folder, aside, dirs_exist_ok=True)
        data = bytearray((aside / "model.onnx").read_bytes())
        at = data.find(np.float32(row).tobytes())
        assert at > 0
        data[at : at + 4] = struct.pack("<f", row[0] + 0.01)
        (aside / "model.onnx").write_bytes(data)

    monkeypatch.setattr(to_onnx, "write", write)
    words = ["export", str(folder.parent / "gpt2-hf"), str(tmp_path / "out"), "--to", "onnx"]
    assert main(words) == 3
    assert "error: the models differ: logits differ by" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["out.different"]
    assert json.loads((tmp_path / "out.different" / "parity.json").read_text())["verdict"] == "different"


def test_weights_are_stored_once_and_within_the_file(exported):
    ours, folder = exported("gpt2")
    size = sum(weight.numel() for weight in ours.model.parameters()) * 4
    found = onnx.load(folder / "model.onnx")
    assert sum(len(each.raw_data) for each in found.graph.initializer) < 1.1 * size
    assert not [each for each in found.graph.initializer if each.external_data]
    assert b".py" not in (folder / "model.onnx").read_bytes()  # nor where it was made


def test_many_weights_lie_beside_the_graph(exported):
    """Written aside and renamed: the graph names its weights by their file alone."""
    _, folder = exported("vit")
    assert {"model.onnx", "model.onnx.data"} <= {path.name for path in folder.iterdir()}
    assert (folder / "model.onnx.data").stat().st_size > (folder / "model.onnx").stat().st_size / 2


def test_int8_is_smaller_and_about_the_same(exported, tmp_path):
    ours, folder = exported("gpt2")
    shutil.copytree(folder, tmp_path / "out")
    to_onnx.quantize(tmp_path / "out" / "model.onnx")
    found = compared(ours, tmp_path / "out", "onnx", "int8", print)
    assert found.verdict == "within the int8 tolerance"
    assert found.check("outputs").result["compared"]["logits"]["relative"] < 1e-5  # of our own rounding
    assert 0 < found.check("agreement").result["divergence"] < 0.1  # of the original
    assert not list((tmp_path / "out").glob("*whole*"))


@pytest.mark.parametrize(
    "preset, why",
    [
        ("rnn-650", "caches more than keys and values|has no attention"),
        ("transformer-xl-base", "caches more than keys and values"),
        ("mixture-8x124m", "chooses experts at run time"),
        ("elmo", "has no attention"),
        ("captioner-b16", "reads images and writes text"),
        ("dvae", "no ONNX convention for dvae"),
        ("syntax-small", "no ONNX convention for these outputs of syntax: arcs, relations"),
    ],
)
def test_what_no_runner_could_run_is_refused(preset, why, tmp_path):
    from heedful.models import find_preset
    from heedful.models.base.skeleton import skeleton

    architecture, config = find_preset(preset)
    loaded = Loaded(architecture, config, skeleton(architecture, config), None, {})
    with pytest.raises(heedful.BadInput, match=why):
        to_onnx.write(loaded, tmp_path)


def test_a_model_that_hugging_face_does_not_have_leaves_with_a_config_of_its_own():
    file = family("modern")
    config = file.ModernConfig(vocab=VOCAB, context=31, layers=1, width=12, heads=3, ffn_width=20)
    loaded = Loaded("modern", config, tiny.build((file, config), torch.float32), None, {"eos": EOS})
    assert to_onnx.refuse(loaded) is None
    told = json.loads(to_onnx.beside(loaded)["config.json"])
    assert told["heedful"]["width"] == 12 and told["eos_token_id"] == EOS


@pytest.mark.parametrize("name", ["gpt2", "transformer"])
def test_a_step_that_was_cut_short_goes_on_as_if_it_had_never_been_longer(name, exported):
    opened = reopen(exported(name)[1])
    (step, prompt), (other, _) = opened.begun([3, 5, 7]), opened.begun([3, 5, 7])
    before = step(prompt)
    step(torch.tensor([[9]]))
    step.rewind(torch.tensor([prompt.shape[1]]))
    other(prompt)
    close(step(torch.tensor([[4]])), other(torch.tensor([[4]])))
    assert before.shape[1] == prompt.shape[1]


def test_keys_that_are_handed_on_can_be_reordered_and_cut_short():
    keys = torch.arange(12.0).view(2, 1, 3, 2)
    cache = modules.CallerCache([(keys, -keys)], torch.tensor([[2], [2]]), torch.arange(3).repeat(2, 1))
    cache.reorder(torch.tensor([1, 1, 0]))
    assert torch.equal(cache.layers[0].present[0], keys[[1, 1, 0]]) and cache.k_pos.shape == (3, 3)
    cache.rewind(torch.tensor([1, 3, 2]))
    assert cache.k_pos.tolist() == [[0, -1, -1], [0, 1, 2], [0, 1, -1]]
