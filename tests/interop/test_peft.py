"""Adapters in and out of Hugging Face's PEFT: it computes the same with ours, and we with its own."""

import json
import math
import shutil

import pytest
import torch
import transformers
from helpers.classify_cases import CPU, Quiet, asked, files, origin_of  # noqa: F401 (fixtures)
from helpers.tuning_cases import FEW, WAYS, data_for, lora_run, texts, translator  # noqa: F401 (fixtures)
from peft import LoraConfig, PeftModel, get_peft_model
from safetensors.torch import load_file, save_file

import heedful
from heedful.errors import BadInput
from heedful.interop.formats import format_of
from heedful.interop.peft.read import BEFORE
from heedful.runs import trainer
from heedful.tasks import recipe

BERT = transformers.AutoModelForSequenceClassification
CLASSES = {
    "classify": BERT,
    "tag": transformers.AutoModelForTokenClassification,
    "lm": transformers.AutoModelForCausalLM,
    "mlm": transformers.AutoModelForMaskedLM,
    "translate": transformers.AutoModelForSeq2SeqLM,
}


def trained(task: str, folder, files, texts, path, **more):
    """A run of LoRA whose adapters have learned something."""
    lora = {
        **WAYS["lora"],
        "train.lora_alpha": 5.0,
        "train.learning_rate": 0.05,
        "train.from": str(folder),
        **more,
    }
    made = (
        asked(files, **lora)
        if task == "classify"
        else recipe.make(task, settings={**FEW, **data_for(task, texts), **lora})
    )
    trainer.start(made, path, Quiet(), CPU)
    return heedful.load(path)


def theirs(task: str, base, folder, labels: int):
    more = {"num_labels": labels} if task in ("classify", "tag") else {}
    model = CLASSES[task].from_pretrained(base, **more)
    return PeftModel.from_pretrained(model, folder).eval()


def agree(task: str, ours, others) -> None:
    """The same scores for the same tokens."""
    torch.manual_seed(5)
    ids = torch.randint(5, 11, (2, 6))
    with torch.no_grad():
        if task == "translate":
            target = torch.randint(5, 11, (2, 4))
            mine, other = ours(ids, target), others(input_ids=ids, decoder_input_ids=target).logits
        elif task == "lm":
            mine, other = ours(ids), others(input_ids=ids).logits
        else:
            mine, other = ours(ids)[{"mlm": "masked_lm"}.get(task, task)], others(input_ids=ids).logits
    assert (mine - other).abs().max() < 1e-5 and mine.abs().max() > 1e-3


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("task", "kind", "layers"),
    [
        ("classify", "bert", "query,value"),
        ("classify", "bert", "query,key,value,out,up,down"),
        ("tag", "bert", "key,down"),
        ("mlm", "bert", "query,value"),
        ("lm", "gpt2", "query,value"),
        ("lm", "gpt2", "key"),
        ("lm", "gpt2", "query,key,value,out,up"),
        ("translate", "saved", "query,value"),
    ],
)
def test_peft_computes_what_we_do_and_back_again(
    task,
    kind,
    layers,
    files,
    texts,
    origin_of,
    translator,
    tmp_path,
):
    base = translator(kind) if task == "translate" else origin_of(kind)
    model = trained(task, base, files, texts, tmp_path / "run", **{"train.lora_layers": layers})
    heedful.save_adapter(tmp_path / "run", tmp_path / "adapter")
    assert sorted(p.name for p in (tmp_path / "adapter").iterdir()) == [
        "adapter_config.json",
        "adapter_model.safetensors",
    ]
    agree(task, model.model, theirs(task, base, tmp_path / "adapter", getattr(model.config, "labels", 2)))
    for name in ("adapter_config.json", "adapter_model.safetensors"):  # a finished run has them beside
        assert (tmp_path / "run" / "adapter" / name).read_bytes() == (
            tmp_path / "adapter" / name
        ).read_bytes()

    again = heedful.load(tmp_path / "adapter")
    found = dict(again.model.named_parameters())
    for name, weight in model.model.named_parameters():
        torch.testing.assert_close(found[name], weight, atol=1e-6, rtol=0)
    base.rename(tmp_path / "moved")
    with pytest.raises(BadInput, match="which is not a folder here: give its folder to heedful.load as base"):
        heedful.load(tmp_path / "adapter")
    elsewhere = heedful.load(tmp_path / "adapter", base=tmp_path / "moved")
    for a, b in zip(elsewhere.model.parameters(), again.model.parameters(), strict=True):
        assert torch.equal(a, b)
    assert task != "classify" or elsewhere.embed("the food").shape == (12,)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("rs", [False, True])
@pytest.mark.parametrize(("task", "kind"), [("classify", "bert"), ("lm", "gpt2"), ("translate", "saved")])
def test_we_compute_what_peft_does_with_its_own(task, kind, rs, origin_of, translator, tmp_path):
    base = translator(kind) if task == "translate" else origin_of(kind)
    more = {"num_labels": 3} if task == "classify" else {}
    targets = {"bert": ["query", "dense"], "gpt2": ["c_attn", "c_proj"], "saved": ["q_proj", "fc1"]}[kind]
    torch.manual_seed(2)
    config = LoraConfig(
        task_type={"classify": "SEQ_CLS", "lm": "CAUSAL_LM", "translate": "SEQ_2_SEQ_LM"}[task],
        r=3,
        lora_alpha=7,
        target_modules=targets,
        use_rslora=rs,
    )
    if task == "classify":  # their pooling layer is called dense too, and becomes an adapter's
        config.target_modules = {"query", "attention.output.dense"}
    model = get_peft_model(CLASSES[task].from_pretrained(base, **more), config)
    for name, weight in model.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(weight, std=0.2)
    model.save_pretrained(tmp_path / "adapter")
    ours = heedful.load(tmp_path / "adapter", base=base)
    agree(task, ours.model, model.eval())


def tiny(kind: str):
    """Encoders whose head for sentences has a layer of its own."""
    if kind == "distilbert":
        return transformers.DistilBertConfig(
            vocab_size=19,
            dim=12,
            n_heads=3,
            n_layers=2,
            hidden_dim=7,
            max_position_embeddings=23,
            num_labels=3,
        )
    return transformers.RobertaConfig(
        vocab_size=19,
        hidden_size=12,
        num_attention_heads=3,
        num_hidden_layers=2,
        intermediate_size=7,
        max_position_embeddings=25,
        type_vocab_size=1,
        num_labels=3,
    )


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("base", [transformers.AutoModelForMaskedLM, BERT])
@pytest.mark.parametrize(
    ("kind", "targets", "saved"),
    [
        ("distilbert", ["q_lin", "v_lin"], ["pre_classifier", "classifier"]),
        ("roberta", ["query"], ["classifier"]),
    ],
)
def test_a_head_that_reads_no_pooling_layer_asks_for_none(kind, targets, saved, base, tmp_path):
    torch.manual_seed(4)
    base.from_config(tiny(kind)).save_pretrained(tmp_path / "base")
    model = BERT.from_pretrained(tmp_path / "base")
    how = {"r": 2, "target_modules": targets, "modules_to_save": saved, "init_lora_weights": False}
    model = get_peft_model(model, LoraConfig(task_type="SEQ_CLS", **how))
    model.save_pretrained(tmp_path / "adapter")
    ours = heedful.load(tmp_path / "adapter")
    assert ours.config.prediction_heads == ("classify",)
    assert format_of(tmp_path / "adapter") == "peft"  # `heedful import` asks no library about adapters alone
    agree("classify", ours.model, model.eval())


def test_a_scale_is_alpha_over_the_rank_or_over_its_root():
    from heedful.interop.peft.read import scale_of

    said = {"r": 4, "lora_alpha": 6, "rank_pattern": {"key": 9}, "alpha_pattern": {"a.key": 5}}
    assert scale_of(said, "a.query", 4) == 1.5 and scale_of(said, "b.a.key", 9) == 5 / 9
    assert scale_of({**said, "use_rslora": True}, "a.query", 4) == 6 / math.sqrt(4)


# What is not read, and what cannot be written


def altered(**more):
    def damage(folder):
        said = json.loads((folder / "adapter_config.json").read_text())
        (folder / "adapter_config.json").write_text(json.dumps({**said, **more}))

    return damage


def reshaped(change):
    def damage(folder):
        tensors = load_file(folder / "adapter_model.safetensors")
        save_file(change(tensors), folder / "adapter_model.safetensors")

    return damage


def without_one(tensors):
    return {name: t for name, t in tensors.items() if "layer.0.attention.self.query.lora_B" not in name}


def renamed(tensors):
    return {name.replace("self.query", "self.nothing"): t for name, t in tensors.items()}


def cut(tensors):
    return {name: t[:, :5].contiguous() if "lora_A" in name else t for name, t in tensors.items()}


def thin(tensors):
    """A product of 10^12 numbers, in a few megabytes."""
    sizes = {"lora_A": (3, 10**6), "lora_B": (10**6, 3)}
    return {
        n: next((torch.zeros(s) for part, s in sizes.items() if part in n), t) for n, t in tensors.items()
    }


@pytest.mark.parametrize(
    ("damage", "told"),
    [
        (
            lambda folder: altered(base_model_name_or_path=str(folder))(folder),
            "says that it began from itself",
        ),
        (reshaped(thin), "does not fit its layer"),
        (
            reshaped(lambda t: t | {f"{BEFORE}foo.weight": torch.ones(3)}),
            "holds 'foo.weight', which is no part",
        ),
        (
            reshaped(lambda t: t | {f"{BEFORE}classifier.weight": torch.tensor(1.0)}),
            "classifier.* is .*, where .* is due",
        ),
        (altered(peft_type="IA3"), "adapters of the type 'IA3', and heedful reads only LORA"),
        (altered(use_dora=True), "its use_dora is True, which plain LoRA does not have"),
        (altered(bias="all"), "it has trained biases"),
        (altered(r=9), "has the rank 3, and adapter_config.json says 9"),
        (altered(r="3"), "adapter_config.json says '3'"),
        (altered(lora_alpha=None), "which is not a number"),
        (altered(rank_pattern={"(a+)+$": 3}), "a pattern .* is not read"),
        (altered(task_type="CAUSAL_LM"), "no part of an adapter of this model"),
        (altered(base_model_name_or_path="hub/name"), "adapts 'hub/name', which is not a folder here"),
        (reshaped(without_one), "has no pair of matrices A and B"),
        (reshaped(renamed), "has no layer"),
        (reshaped(cut), "does not fit its layer"),
        (reshaped(lambda t: {"other.name": torch.ones(3)}), "which is no part of an adapter"),
        (reshaped(lambda t: {n: v.to(torch.int32) for n, v in t.items()}), "as I32, which is no part"),
        (
            lambda folder: (folder / "adapter_model.safetensors").unlink(),
            "adapter_model.safetensors is missing",
        ),
        (
            lambda folder: (folder / "adapter_model.safetensors").rename(folder / "adapter_model.bin"),
            "is a pickle, which can run code",
        ),
    ],
)
def test_a_damaged_adapter_is_one_sentence(damage, told, lora_run, tmp_path):
    heedful.save_adapter(lora_run, tmp_path / "adapter")
    damage(tmp_path / "adapter")
    with pytest.raises(BadInput, match=told) as caught:
        heedful.load(tmp_path / "adapter")
    assert "\n" not in str(caught.value) and str(caught.value).count(str(tmp_path / "adapter")) >= 1


def test_what_has_no_adapters_to_save_is_refused(lora_run, origin_of, files, tmp_path):
    with pytest.raises(BadInput, match="was not trained with train.tune=lora"):
        heedful.save_adapter(tmp_path / "bert", tmp_path / "a")
    assert not list((tmp_path / "a").iterdir())
    trained("classify", origin_of("lm"), files, {}, tmp_path / "decoder")
    assert not (tmp_path / "decoder" / "adapter").exists()
    with pytest.raises(BadInput, match="a decoder with a classification head"):
        heedful.save_adapter(tmp_path / "decoder", tmp_path / "b")
    with pytest.raises(BadInput, match="holds no PEFT adapters: leave out `base`"):
        heedful.load(lora_run, base=tmp_path / "bert")
    shutil.rmtree(tmp_path / "bert")
    with pytest.raises(BadInput, match="which is missing"):
        heedful.save_adapter(lora_run, tmp_path / "c")
