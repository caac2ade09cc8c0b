"""Texts that run a script where they are taken for HTML, and folders that have them in all their files."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import tokenizers as tk
import torch

import heedful
from heedful.interop.loaded import Loaded
from heedful.models import gpt2
from helpers import tiny

RUN = "pwned=1"
TAGS = [  # {} is the script; none has a space, and so a tokenizer of words keeps each whole
    "<img/src='x'/onerror={}>", "<svg/onload={}>", "<svg><animate/onbegin='{}'/attributeName='x'/dur='1s'>",
    "<video><source/onerror={}></video>", "<audio/src='x'/onerror={}>", "<details/open/ontoggle={}>",
    "<body/onload={}>", "<iframe/srcdoc='<script>parent.pwned=1</script>'>", "<script>{}</script>",
    "<iframe/src='javascript:parent.pwned=1'>", "<img/srcset='x'/onerror={}>",
    "<select/autofocus/onfocus={}>", "<input/autofocus/onfocus={}>", "<style/onload={}>x{{}}</style>",
    "<video/src='x'/onerror={}></video>",
    "<link/rel='stylesheet'/href='data:,x'/onload={}>", "<svg><image/href='x:'/onerror={}>",
    "<svg><set/onbegin='{}'/attributeName='x'/dur='1s'>", "<picture><img/src='x'/onerror={}></picture>",
    "<math><mtext><img/src='x'/onerror={}></mtext></math>",
]  # fmt: skip
LEADS = ["", '">', "'>", "-->", "</textarea>", "</title>", "</option></select>", "</svg>", "]]>", "a"]
PAYLOADS = [lead + tag.format(RUN) for lead in LEADS for tag in TAGS]
NAMES = [text.replace("</", "<|").replace("/", " ") for text in PAYLOADS]  # a name of a file has no slash
assert len({*PAYLOADS}) == len({*NAMES}) == 200


def write_runs(root: Path) -> None:
    """200 runs without a model; names, tasks, states and figures are payloads."""
    for name, text in zip(NAMES, PAYLOADS, strict=True):
        folder = root / name
        folder.mkdir()
        (folder / "recipe.json").write_text(json.dumps({"task": text, text: text}))
        (folder / "status.json").write_text(json.dumps({"reason": text, "step": text, "best": {text: 1.5}}))


def write_training(root: Path) -> str:
    """A run whose metrics and samples are payloads; its name."""
    folder = root / NAMES[1]
    lines = [
        {"step": step, "loss": 2.0 / step, **dict.fromkeys(PAYLOADS, float(step))} for step in range(1, 9)
    ]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    samples = [{"step": step, "samples": [[text, text, text] for text in PAYLOADS]} for step in (4, 8)]
    (folder / "samples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in samples))
    return folder.name


def write_classifier(stored: Path, root: Path) -> str:
    """A classifier whose labels are payloads; its name."""
    folder = root / f"classify {NAMES[0]}"
    shutil.copytree(stored / "classify", folder)
    counts = json.loads((folder / "labels.json").read_text()).values()
    (folder / "labels.json").write_text(json.dumps(dict(zip(PAYLOADS, counts, strict=False))))
    return folder.name


def write_writer(root: Path) -> str:
    """A language model whose words are the payloads; its name."""
    folder = root / f"writer {NAMES[2]}"
    words = {text: number for number, text in enumerate(["<unk>", *PAYLOADS])}
    tokenizer = tk.Tokenizer(tk.models.WordLevel(words, unk_token="<unk>"))
    tokenizer.pre_tokenizer = tk.pre_tokenizers.WhitespaceSplit()
    sizes = {"layers": 2, "heads": 3, "context": 64, "width": 12, "ffn_width": 20}
    config = gpt2.GPT2Config(vocab=len(words), **sizes)
    heedful.save(Loaded("gpt2", config, tiny.build((gpt2, config), torch.float32, 3), tokenizer, {}), folder)
    return folder.name
