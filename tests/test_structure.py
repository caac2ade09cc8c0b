"""The shape of the code itself: imports point down, nothing heavy is imported early, names tell the truth."""

import ast
import subprocess
import sys
import tomllib

import pytest
import torch
from helpers import tiny
from helpers.tensor_names import (
    ROOT,
    told,  # noqa: F401 (fixtures)
)

import heedful

# Lowest first. A file may import from its own layer and from those below it.
LAYERS = [
    "errors",
    "device",
    "called",
    "kernels",
    "parts",
    "models",
    "costs",
    "recipe",
    "decode",
    "interop",
    "text",
    "vision",
    "train",
    "tasks",
    "pictures",
    "look_steps",
    "look",
    "look_images",
    "look_captions",
    "look_codes",
    "look_positions",
    "use",
    "options",
    "cli",
    "completion",
    "commands",
    "picture_commands",
    "text_commands",
    "caption_command",
    "paint_command",
    "train_command",
    "evaluate_command",
    "look_command",
    "doctor",
    "exchange_command",
    "bench",
    "compare",
]


def layer_of(module: str) -> int:
    first = module.split(".")[0]
    return 0 if first == "__version__" else LAYERS.index(first)


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_down(path):
    parts = path.relative_to(ROOT).with_suffix("").parts
    if parts[0].startswith("__"):
        return  # the package itself hands out names of every layer
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            base = [] if node.level == len(parts) else list(parts[: len(parts) - node.level])
            names = [node.module] if node.module else [alias.name for alias in node.names]
            for name in names:
                target = ".".join([*base, name])
                assert layer_of(target) <= layer_of(parts[0]), (
                    f"{path.name} imports {target}, which is above it"
                )
        elif isinstance(node, ast.Import | ast.ImportFrom):
            modules = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            outside = {m.split(".")[0] for m in modules} - sys.stdlib_module_names
            lean = {
                "parts": {"torch"},
                "kernels": {"torch", "triton"},
                "models": {"torch"},
                "recipe": set(),
                "errors": set(),
            }
            allowed = lean.get(parts[0], {"torch", "numpy", "safetensors", "tokenizers", "rich", "tyro"})
            assert outside <= allowed, f"{path.name} imports {outside - allowed}"


def run_python(code: str) -> str:
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_importing_heedful_imports_no_torch_and_nothing_of_transformers_ever():
    assert (
        run_python("import heedful, sys; print('torch' in sys.modules, 'numpy' in sys.modules)")
        == "False False\n"
    )
    code = "import heedful, sys; heedful.load; heedful.watch; print([m for m in ('transformers', 'rich', 'tyro', 'torch._inductor') if m in sys.modules])"
    assert run_python(code) == "[]\n"


def test_loading_a_model_does_not_import_the_compiler(tmp_path):
    """torch._dynamo takes longer to import than torch itself, and loading needs nothing of it."""
    from helpers import hf_zoo

    for name in hf_zoo.FAMILIES:
        hf_zoo.write(hf_zoo.make(name, 0), tmp_path / name)
    code = f"""
import heedful, sys
for name in {list(hf_zoo.FAMILIES)}:
    heedful.load({str(tmp_path)!r} + "/" + name)
print("torch._dynamo" in sys.modules)
"""
    assert run_python(code) == "False\n"


def test_every_public_name_exists():
    for name in heedful.__all__:
        assert getattr(heedful, name) is not None
    assert set(heedful.__all__) <= set(dir(heedful))
    with pytest.raises(AttributeError, match="no attribute 'lode'"):
        heedful.lode  # noqa: B018


def test_an_editable_install_is_a_plain_path():
    """setuptools then writes a .pth; its other way, a finder, comes after the folder that holds a clone named heedful."""
    told = tomllib.loads((ROOT.parent / "pyproject.toml").read_text())["tool"]["setuptools"]
    assert told["package-dir"] == {"": "."} and told["packages"]["find"]["include"] == ["heedful*"]


# Names tell the truth: x_BTD has three axes, and a letter means one size within a function.


def test_tensor_names_tell_the_truth(told):
    found, heard = told
    tree = tiny_tree()
    for name, entry in {**tiny.DECODERS, **tiny.ENCODER_DECODERS, **tiny.ENCODERS}.items():
        model = tiny.build(entry)
        ids, lengths = torch.randint(17, (2, 5)), torch.tensor([5, 3])
        with heedful.watch(model):
            for _ in range(2):
                if name in tiny.ENCODER_DECODERS:
                    model(torch.randint(17, (2, 7)), ids, torch.tensor([7, 6]), lengths)
                else:
                    model(ids, lengths)
        if name in tiny.DECODERS:
            for cache in (model.growing_cache(), model.static_cache(2, 13)):
                model(ids, lengths, cache=cache)
                model(ids[:, :1], cache=cache)
            model(ids, documents_BT=torch.tensor([[0, 0, 1, 1, 1], [0, 1, 1, 2, 2]]))
    tiny.build((tiny.vit, tiny.VIT))(torch.randn(2, 3, 12, 12, dtype=torch.float64))
    for position in every_relative_position():
        layer = heedful.parts.attention.MultiHeadAttention(12, 3, position=position)  # type: ignore[attr-defined]
        layer(torch.randn(2, 5, 12), tree)
    assert found == []
    assert {
        "attend_sdpa",
        "masked_softmax",
        "MultiHeadAttention.forward",
        "StaticLayer.append",
        "Shaw.bias",
    } <= heard


def tiny_tree():
    from heedful.parts.masks import full
    from heedful.parts.positions.base import Tree
    from heedful.parts.view import View

    places = Tree(torch.arange(5), torch.tensor([[1, -1, 1, 2, 3], [-1, 0, 0, 0, 1]]))
    return View(full(), 5, 5, q_pos=places, k_pos=places)


def every_relative_position():
    from heedful.parts.positions.relative import ALiBi, Shaw, T5Buckets, TransformerXL
    from heedful.parts.positions.rotary import Rotary
    from heedful.parts.positions.syntax import StructuralRelative

    yield from (
        Shaw(2, 4),
        StructuralRelative(2, 4),
        TransformerXL(12, 3, 4),
        ALiBi(3),
        Rotary(4),
        T5Buckets(3),
    )


def test_the_listener_hears_a_lie(told):
    found, _ = told
    source = """
def f(torch):
    x_BT = torch.zeros(2, 3, 4)
    y_BT = torch.zeros(2, 3)
    z_TB = torch.zeros(2, 3)
"""
    scope: dict = {}
    exec(compile(source, str(ROOT / "lie.py"), "exec"), scope)  # noqa: S102 (a function that lives in the package)
    scope["f"](torch)
    assert len(found) == 3
