"""Random generation settings, and what transformers' `generate` and heedful write by them."""

import json
import random
import shutil
import warnings
from pathlib import Path

import pytest
import torch
import transformers as hf

import heedful
from heedful.decode.filters import Context
from heedful.decode.scores import apply
from heedful.decode.step import step_of
from heedful.use import generate, translate
from heedful.use.search import search_of
from helpers.writer_cases import THEIRS, byte_level

FAMILIES = ["gpt2", "llama", "t5", "bart", "marian"]
DECODERS = ("gpt2", "llama")
TEXTS = ["the cat sleeps", "i am a student", "the dog eats the fish and the cat eats the dog", "we see"]
AS_OPTION = {
    "num_beams": "beam", "length_penalty": "length_alpha", "max_new_tokens": "max_new_tokens",
    "min_new_tokens": "min_new_tokens", "no_repeat_ngram_size": "no_repeat_ngram_size",
    "repetition_penalty": "repetition_penalty", "top_k": "top_k", "top_p": "top_p", "min_p": "min_p",
    "encoder_no_repeat_ngram_size": "encoder_no_repeat_ngram_size", "temperature": "temperature",
}  # fmt: skip
ENDS = list(range(2, 290, 11))


def folders(root: Path) -> dict[str, Path]:
    """A tiny random model of each family, with its tokenizer."""
    made = {}
    for seed, name in enumerate(FAMILIES):
        torch.manual_seed(seed)
        model = THEIRS[name]().eval()
        with torch.no_grad():
            for weight in model.parameters():
                if weight.requires_grad:
                    weight.copy_(torch.randn_like(weight) * 0.4 + (weight.ndim == 1))
        model.save_pretrained(root / name)
        byte_level().save(str(root / name / "tokenizer.json"))
        made[name] = root / name
    return made


def random_settings(dice: random.Random, translates: bool) -> dict:
    """Settings of `generate`, each as often there as not."""

    def maybe(name, *values, odds=0.45):
        return {name: dice.choice(values)} if dice.random() < odds else {}

    found = {
        "eos_token_id": dice.choice([2, [2, 9], ENDS, ENDS]),
        **maybe("num_beams", 1, 2, 3, 4, 5, odds=0.7),
        **maybe("repetition_penalty", 0.8, 1.2, 1.9),
        **maybe("no_repeat_ngram_size", 0, 1, 2, 3),
        **maybe("encoder_no_repeat_ngram_size", 1, 2, 3, odds=0.3),
        **maybe("suppress_tokens", [5, 40, 41], [100]),
        **maybe("begin_suppress_tokens", [7, 8], list(range(3, 150))),
        **maybe("forced_bos_token_id", 4, 60, odds=0.4),
        **maybe("forced_eos_token_id", 2, [2], odds=0.4),
        **maybe("bad_words_ids", [[9], [12, 5]], [[30, 31], [2], list(range(60, 62))], odds=0.4),
        **maybe("length_penalty", -0.5, 0.0, 0.6, 1.0, 2.0),
        **maybe("early_stopping", True, False, "never"),
    }
    found |= dice.choice([{"max_new_tokens": dice.randint(1, 12)}, {"max_length": dice.randint(24, 34)}])
    found |= dice.choice([{}, {"min_new_tokens": dice.randint(0, 9)}, {"min_length": dice.randint(0, 30)}])
    if translates and "max_length" in found:
        found["max_length"] -= 20
    if found.get("num_beams", 1) == 1 and dice.random() < 0.5:
        found["do_sample"] = True
        found |= maybe("temperature", 0.3, 0.8, 1.7) | maybe("top_k", 0, 3, 20) | maybe("top_p", 0.5, 0.9)
        found |= maybe("min_p", 0.01, 0.1)
    return found


class GenerationCase:
    """One random case: a folder with settings, and a few of them given as options."""

    def __init__(self, seed: int, models: dict[str, Path], where: Path) -> None:
        dice = random.Random(seed)
        name = FAMILIES[seed % len(FAMILIES)]
        self.translates = name not in DECODERS
        self.settings, self.text = random_settings(dice, self.translates), dice.choice(TEXTS)
        moved = [n for n in self.settings if n in AS_OPTION and dice.random() < 0.3]
        beams = self.settings.get("num_beams", 1) > 1
        self.theirs = {n: self.settings[n] for n in moved if n != "length_penalty" or beams}
        if self.theirs.get("min_new_tokens", 0) > self.theirs.get("max_new_tokens", 99):  # refused
            del self.theirs["min_new_tokens"]
        self.options = {AS_OPTION[n]: value for n, value in self.theirs.items()}
        if self.settings.get("do_sample"):  # a beam that is given means a search
            self.options.pop("beam", None)
        self.folder = where / str(seed)
        shutil.copytree(models[name], self.folder)
        self.write(older=dice.random() < 0.25)
        self.model = heedful.load(self.folder)

    def write(self, older: bool) -> None:
        """Put the settings that are not given into the folder; older: into its config."""
        special = json.loads((self.folder / "generation_config.json").read_text())
        said = special | {n: x for n, x in self.settings.items() if n not in self.theirs}
        path = self.folder / "generation_config.json"
        if older:
            path.unlink()
            path = self.folder / "config.json"
            said = json.loads(path.read_text()) | said
        path.write_text(json.dumps(said))
        self.file = path.name

    def generate(self):
        """What transformers writes: the whole output."""
        kind = hf.AutoModelForSeq2SeqLM if self.translates else hf.AutoModelForCausalLM
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = kind.from_pretrained(self.folder).eval()
            ids = torch.tensor([self.source])
            torch.manual_seed(3)
            return model.generate(
                ids,
                attention_mask=torch.ones_like(ids),
                return_dict_in_generate=True,
                output_scores=True,
                **self.theirs,
            )

    @property
    def source(self) -> list[int]:
        words = self.model.wording
        return (words.source if self.translates else words.prompt)([self.text])[0].ids

    def compare(self) -> None:
        """Assert that both write the same, with the same score; sampling by its distribution."""
        ability = translate if self.translates else generate
        how = self.model.decoding("translate" if self.translates else "generate", self.options)
        if not self.translates and len(self.source) >= (how.max_length or 99):  # both refuse it
            with pytest.raises(ValueError, match="Input length of input_ids"):
                self.generate()
            with pytest.raises(heedful.BadInput, match="give `max_new_tokens`"):
                self.model.generate(self.text, **self.options)
            return
        out = self.generate()
        new = out.sequences[0, 1 if self.translates else len(self.source) :].tolist()
        rows = ability.encode(self.model, [self.text])
        ends = self.model.wording.ends
        new = new[: next((i + 1 for i, token in enumerate(new) if token in ends), len(new))]
        if how.sample:
            return self.compare_distributions(out, how, ability.requests(self.model, rows, how, [0])[0], new)
        (answer,) = ability.write(self.model, rows, how, [0])
        about = (self.folder.name, self.file, self.settings, self.options)
        assert answer.tokens == self.model.wording.names(new), about
        words = new[:-1] if new and new[-1] in ends else new
        assert str(answer) == self.model.wording.text(words, () if self.translates else self.source), about
        if (how.beam or 1) > 1:
            assert abs(answer.score - float(out.sequences_scores[0])) < 1e-4, about

    def compare_distributions(self, out, how, request, new: list[int]) -> None:
        """The distribution of every token that transformers drew, as it was drawn from."""
        search = search_of(self.model, how)
        source = (torch.tensor([self.source]),) if self.translates else ()
        step = step_of(self.model.model, *source)
        fed = torch.tensor([request.prompt])
        context, filters = Context.prompts(fed, None), search.filters([request])
        assert len(new) <= request.longest
        for n, token in enumerate(new):
            ours = apply(filters, step.last(fed), context).softmax(-1)
            torch.testing.assert_close(ours, out.scores[n].softmax(-1), atol=1e-5, rtol=1e-4)
            fed = torch.tensor([[token]])
            context = context.then(fed[0])
