"""edit: what is changed inside a model, checked against the same change made to its weights by hand."""

from concurrent.futures import ThreadPoolExecutor
from copy import deepcopy

import pytest
import torch
from helpers.look_cases import imported

from heedful.errors import BadInput
from heedful.inside.edit_spellings import parse, spell
from heedful.inside.edits import edit, head_means
from heedful.inside.look.layers import paths_of
from heedful.inside.model_inputs import forward, input_of
from heedful.inside.trace import trace
from heedful.interop.loaded import Loaded
from heedful.parts.watch import watch
from heedful.use.model import Model

TEXT = "the cat sat on the mat"
FAMILIES = {"gpt2": "self", "llama": "self", "bert": "self", "transformer": "cross"}
SPELLINGS = (
    "zero:cross.3.2",
    "mean:self.1.*",
    "uniform:encoder.*.*",
    "force:cross.3.2:5>2",
    "scale:self.1.*:2.0",
    "scale:self.1.2:1e-05",
    "patch:decoder.2@4<clean",
    "patch:decoder.0<a file.safetensors",
    "patch:cross.3.2@4<clean",
    "drop:decoder.2.cross",
    "drop:encoder.1.feed_forward",
    "mask:7",
    "positions:none",
)


@pytest.fixture(scope="module")
def loaded():
    return {name: imported(name) for name in FAMILIES}


def outputs(loaded: Loaded, edits=(), target="mat the on sat", **more) -> torch.Tensor:
    given = input_of(loaded, TEXT, target if loaded.architecture == "transformer" else None)
    with edit(loaded, edits, **more):
        found = forward(loaded.model, given)
    return found["masked_lm" if "masked_lm" in found else "logits"]


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_a_spelling_comes_back(spelling):
    assert spell(parse(spelling)) == spelling
    assert parse(spell(parse(spelling))) == parse(spelling)


@pytest.mark.parametrize(
    ("spelling", "why"),
    [
        ("zero:cross.3", "it is spelled like zero:cross.3.2"),
        ("zero:cross.0.1", "it is spelled like"),
        ("nil:cross.1.1", "edits are zero, mean, uniform, force, scale, patch, drop, mask, positions"),
        ("scale:self.1.1:0", "scales scores by 0: give a factor above 0"),
        ("patch:decoder.1@2", "patch:decoder.2@4<clean or patch:cross.3.2@4<clean"),
    ],
)
def test_what_is_no_edit_is_refused_in_a_sentence(spelling, why):
    with pytest.raises(BadInput, match=why):
        parse(spelling)


@pytest.mark.parametrize(
    ("name", "spelling", "why"),
    [
        ("gpt2", "zero:cross.1.1", "has self-attention, and no cross-attention"),
        ("gpt2", "zero:self.3.1", "there is no layer 3; there are 2"),
        ("llama", "uniform:self.1.7", "there is no head 7; there are 6"),
        ("gpt2", "force:self.1.1:2>5", "query 2 may not see key 5"),
        ("gpt2", "drop:decoder.1.cross", "block 1 of the decoder has no cross"),
        ("gpt2", "drop:encoder.1.self", "no encoder of blocks; it has decoder"),
        ("bert", "drop:encoder.4.self", "there is no block 4; the encoder has 2"),
        ("gpt2", "mean:self.1.1", "give `means`"),
        ("gpt2", "patch:decoder.1@2<clean", 'no trace "clean"'),
    ],
)
def test_what_a_model_does_not_have_is_refused_in_a_sentence(name, spelling, why, loaded):
    with pytest.raises(BadInput, match=why), edit(loaded[name], [spelling]):
        pass


@pytest.mark.parametrize("name", FAMILIES)
def test_zero_of_every_head_equals_its_columns_of_the_output_matrix_times_zero(name, loaded):
    kinds = ("cross", "self", "encoder") if name == "transformer" else ("self",)
    before = outputs(loaded[name])
    for which in kinds:
        for layer, path in paths_of(loaded[name].model, which).items():
            for head in range(1, loaded[name].model.get_submodule(path).heads + 1):
                network = deepcopy(loaded[name].model)
                attention = network.get_submodule(path)
                width = attention.value_width
                with torch.no_grad():
                    attention.out.weight[:, (head - 1) * width : head * width] *= 0
                other = Loaded(
                    name, loaded[name].config, network, loaded[name].tokenizer, loaded[name].special
                )
                changed = outputs(loaded[name], [f"zero:{which}.{layer}.{head}"])
                torch.testing.assert_close(changed, outputs(other), atol=1e-6, rtol=1e-6)
                assert (changed - before).abs().max() > 1e-3
    assert torch.equal(outputs(loaded[name]), before)


@pytest.mark.parametrize("name", FAMILIES)
def test_a_trace_patched_by_itself_changes_nothing(name, loaded):
    target = "mat the on sat" if name == "transformer" else None
    seen, which = trace(loaded[name], TEXT, target), FAMILIES[name]
    shells = list(dict.fromkeys(shell for shell, _ in seen.streams))
    edits = [f"patch:{shell}.{layer}<clean" for shell in shells for layer in (0, 1, 2)]
    edits += [f"patch:{which}.{layer}.*@3<clean" for layer in (1, 2)]
    for one in (*([one] for one in edits), edits):
        again = trace(loaded[name], TEXT, target, edits=one, traces={"clean": seen})
        assert torch.equal(again.logits, seen.logits), one
    other = trace(loaded[name], "the dog ate the fish", target and "fish the ate dog")
    for one in edits:
        again = trace(loaded[name], TEXT, target, edits=[one], traces={"clean": other})
        assert not torch.equal(again.logits, seen.logits), one


def test_mean_replaces_a_head_by_its_mean_over_the_texts(loaded):
    gpt2 = loaded["gpt2"]
    texts = ["the cat sat", "a dog ate the fish on the mat"]
    means = head_means(gpt2, texts)
    joined = torch.cat([trace(gpt2, text).sublayer("self", 2).heads_TX for text in texts])
    torch.testing.assert_close(means["self", 2], joined.mean(0))
    seen = trace(gpt2, TEXT, edits=["mean:self.2.3"], means=means).sublayer("self", 2)
    torch.testing.assert_close(seen.heads_TX[:, 8:], means["self", 2][8:].expand(len(seen.heads_TX), -1))
    assert not torch.allclose(seen.heads_TX[:, 4:8], means["self", 2][4:8].expand(len(seen.heads_TX), -1))


def test_uniform_force_and_scale_change_the_weights_of_their_head_only(loaded):
    gpt2 = loaded["gpt2"]
    plain = trace(gpt2, TEXT)
    edits = ["uniform:self.1.1", "force:self.1.2:4>2", "scale:self.1.3:3.0"]
    seen = trace(gpt2, TEXT, edits=edits)
    allowed = plain.allowed("self", 1)
    detail, before = seen.detail("self", 1), plain.detail("self", 1)
    torch.testing.assert_close(detail.weights_HTS[0], allowed / allowed.sum(-1, keepdim=True))
    assert detail.weights_HTS[1, 3].tolist() == [0.0, 1.0] + [0.0] * (len(allowed) - 2)
    rest = [row for row in range(len(allowed)) if row != 3]
    assert torch.equal(detail.weights_HTS[1, rest], before.weights_HTS[1, rest])
    sharper = (3 * before.scores_HTS[2]).masked_fill(~allowed, -torch.inf).softmax(-1)
    torch.testing.assert_close(detail.weights_HTS[2], sharper)
    assert seen.edits == edits and seen.provenance["edits"] == edits
    with pytest.raises(BadInput, match="there is no query 99"):
        trace(gpt2, TEXT, edits=["force:self.1.1:99>2"])


@pytest.mark.parametrize("name", FAMILIES)
def test_a_dropped_sublayer_adds_nothing(name, loaded):
    which = FAMILIES[name]
    shell = "encoder" if name == "bert" else "decoder"
    target = "mat the on" if name == "transformer" else None
    seen = trace(loaded[name], TEXT, target, edits=[f"drop:{shell}.1.{which}"]).sublayer(which, 1)
    assert not seen.added_TD.any()
    assert torch.equal(seen.sum_TD, seen.x_TD)
    whole = trace(loaded[name], TEXT, target, edits=[f"drop:{shell}.2.{p}" for p in ("self", "feed_forward")])
    if name in ("gpt2", "llama"):
        assert torch.equal(whole.stream(shell, 2), whole.stream(shell, 1))


def test_a_masked_token_is_read_as_the_mask(loaded):
    bert = loaded["bert"]
    seen = trace(bert, TEXT, edits=["mask:3"])
    mask = bert.tokenizer.token_to_id("[MASK]")
    assert seen.words.ids[2] == mask and seen.kinds["self"].down[2] == "[MASK]"
    with torch.no_grad():
        expected = bert.model(torch.tensor([seen.words.ids]))["masked_lm"][0]
    torch.testing.assert_close(seen.logits, expected, atol=1e-5, rtol=1e-5)
    torch.testing.assert_close(outputs(bert, ["mask:3"]), expected)
    with pytest.raises(BadInput, match="no token 99"):
        trace(bert, TEXT, edits=["mask:99"])


@pytest.mark.parametrize("name", FAMILIES)
def test_without_positions_an_encoder_reads_a_bag_of_words(name, loaded):
    one = loaded[name]
    before = outputs(one)
    with edit(one, ["positions:none"]):
        ids = torch.tensor([[5, 9, 7, 6]])
        if name == "bert":
            a, b = (one.model(some)["masked_lm"][0] for some in (ids, ids.flip(1)))
            torch.testing.assert_close(a, b.flip(0))
        elif name == "transformer":
            a, b = (one.model.encoder(some)[0] for some in (ids, ids.flip(1)))
            torch.testing.assert_close(a, b.flip(0))
        else:  # the last token sees all others, and not their order
            a, b = (one.model(some)[0, -1] for some in (ids, ids[:, [1, 0, 2, 3]]))
            if name == "llama":
                first = one.model.stack.blocks[0].attention
                x = one.model.inputs(ids, torch.arange(4))
                turned = x[:, [1, 0, 2, 3]]
                a, b = (first(some)[0, -1] for some in (x, turned))
                torch.testing.assert_close(a, b)
            else:
                assert torch.equal(one.model.inputs(ids, torch.arange(4)), one.model.inputs.tokens(ids))
    assert torch.equal(outputs(one), before)
    assert not any("position" in vars(module) for module in one.model.modules())


def test_edits_belong_to_their_thread(loaded):
    gpt2, edits = loaded["gpt2"], ["zero:self.1.1", "uniform:self.2.2", "positions:none", "mask:2"]
    before = outputs(gpt2)
    with ThreadPoolExecutor(1) as other, edit(gpt2, edits):
        changed = forward(gpt2.model, input_of(gpt2, TEXT))["logits"]
        assert torch.equal(
            other.submit(lambda: forward(gpt2.model, input_of(gpt2, TEXT))["logits"]).result(), before
        )
    assert not torch.allclose(changed, before)
    assert torch.equal(outputs(gpt2), before)


def test_a_watch_inside_an_edit_records_the_weights_that_are_used(loaded):
    gpt2 = loaded["gpt2"]
    with edit(gpt2, ["force:self.1.2:4>2"]), watch(gpt2.model) as records:
        forward(gpt2.model, input_of(gpt2, TEXT))
    assert records["stack.blocks.0.attention.layer"].weights[0][0, 1, 3, :3].tolist() == [0.0, 1.0, 0.0]


def test_a_trace_inside_an_edit_is_refused(loaded):
    with edit(loaded["gpt2"], ["zero:self.1.1"]), pytest.raises(BadInput, match="give them to it"):
        trace(loaded["gpt2"], TEXT)


@pytest.mark.parametrize(
    "edits", [["drop:decoder.1.self", "positions:none"], ["force:self.1.*:1>1", "zero:self.2.1"]]
)
def test_writing_and_scoring_under_edits_take_the_plain_path(edits, loaded):
    model = Model(loaded["gpt2"])
    before = model.generate("the cat", max_new_tokens=5), model.score("the cat sat").total
    with edit(model, edits):
        prompt = input_of(model.loaded, "the cat").words.ids
        for _ in range(5):  # token by token, without a cache and without any fast path
            with torch.no_grad():
                prompt = [*prompt, int(model.model(torch.tensor([prompt]))[0, -1].argmax())]
        changed = model.generate("the cat", max_new_tokens=5)
        assert changed == model.tokenizer.decode(prompt[-5:])
        assert model.score("the cat sat").total != before[1]
    assert (model.generate("the cat", max_new_tokens=5), model.score("the cat sat").total) == before
