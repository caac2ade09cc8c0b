"""A folder of ONNX graphs as onnxruntime opens it."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor

from ...decode.step import Step
from ...files import present, read_json
from ..foreign import NetworkInput, Outputs, Searched, each_text, padded, real
from ..packages import needed, quiet
from ..run_folder import CONFIG
from .exact import exact_graph
from .modules import ENCODER, FIRST, MODEL, NEXT


def reopen(folder: Path, exact: bool = False) -> OnnxModel:
    """The graphs of a folder in onnxruntime. exact: products in float32, whatever is stored."""
    return OnnxModel(folder, exact)


class Session:
    """One graph, given and giving tensors by name."""

    def __init__(self, path: Path, exact: bool = False) -> None:
        changed = exact_graph(path) if exact else None
        with quiet():
            runtime = needed("onnxruntime", "onnx")
            how = runtime.SessionOptions()
            how.log_severity_level = 3
            how.intra_op_num_threads = torch.get_num_threads()
            how.add_session_config_entry("session.intra_op.allow_spinning", "0")
            self.session = runtime.InferenceSession(
                changed or str(path), how, providers=["CPUExecutionProvider"]
            )
        self.inputs = {value.name: value.shape for value in self.session.get_inputs()}
        self.outputs = [value.name for value in self.session.get_outputs()]

    def __call__(self, **given: Tensor) -> dict[str, Tensor]:
        fed = {name: given[name].contiguous().numpy() for name in self.inputs}
        out = self.session.run(None, fed)
        return {name: torch.from_numpy(array) for name, array in zip(self.outputs, out, strict=True)}


class OnnxModel(Searched):
    """A model in onnxruntime. heedful's own searches use its scores, token by token through the cache."""

    def __init__(self, folder: Path, exact: bool = False) -> None:
        config = read_json(folder / CONFIG)
        numbers = {name: config.get(f"{name}_token_id") for name in ("bos", "eos", "decoder_start")}
        special = {name: number for name, number in numbers.items() if type(number) is int}
        self.end, self.start = special.get("eos"), special.get("decoder_start", special.get("bos", 0))
        self.pairs = present(folder / ENCODER)
        names = (ENCODER, FIRST, NEXT) if self.pairs else (MODEL,)
        self.sessions = {name: Session(folder / name, exact) for name in names}

    @property
    def writes(self) -> bool:
        return self.pairs or any("past_key_values" in name for name in self.sessions[MODEL].inputs)

    def outputs(self, rows: list[NetworkInput]) -> list[Outputs]:
        """Of several texts at once, padded at their ends."""
        tokens_BT, lengths_B = padded([row.ids for row in rows])
        if self.writes:
            step: OnnxStep = self.step(tokens_BT, lengths_B)
            if self.pairs:
                tokens_BT, lengths_B = padded([row.target or [self.start] for row in rows])
            return each_text({"logits": step(tokens_BT, lengths_B)}, lengths_B)
        segments_BT, _ = padded([row.segments or [0] * len(row.ids) for row in rows])
        given = {"attention_mask": real(tokens_BT, lengths_B), "token_type_ids": segments_BT}
        return each_text(self.sessions[MODEL](input_ids=tokens_BT, **given), lengths_B)

    def pictures(self, images_BCHW: Tensor) -> list[Outputs]:
        found = self.sessions[MODEL](pixel_values=images_BCHW)
        length = max(part.shape[1] for part in found.values())
        return each_text(found, torch.full((len(images_BCHW),), length))

    def step(self, tokens_BT: Tensor, lengths_B: Tensor) -> OnnxStep:
        if not self.pairs:
            return OnnxDecoderStep(self.sessions[MODEL])
        mask_BS = real(tokens_BT, lengths_B)
        read = self.sessions[ENCODER](input_ids=tokens_BT, attention_mask=mask_BS)["last_hidden_state"]
        return OnnxPairStep(self.sessions[FIRST], self.sessions[NEXT], mask_BS, read)

    def begun(self, ids: list[int]) -> tuple[Step, Tensor]:
        prompt = torch.tensor([[self.start] if self.pairs else ids])
        return self.step(*padded([ids])), prompt

    def tokens(self, text: str) -> list[int] | None:
        return None  # onnxruntime has no tokenizer: the folder's is heedful's own


class OnnxStep(Step):
    """A graph as a step: keys and values are kept here."""

    def __init__(self) -> None:
        self.past: dict[str, Tensor] = {}

    def keep(self, out: dict[str, Tensor]) -> Tensor:
        self.past |= {
            name.replace("present", "past_key_values"): part for name, part in out.items() if name != "logits"
        }
        return out["logits"]


class OnnxDecoderStep(OnnxStep):
    def __init__(self, session: Session) -> None:
        super().__init__()
        self.session, self.mask_BS = session, torch.zeros(0, 0)

    def __call__(self, tokens_BT: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        if not self.past:
            B = len(tokens_BT)
            shapes = {name: shape for name, shape in self.session.inputs.items() if name.startswith("past")}
            self.past = {name: torch.zeros(B, shape[1], 0, shape[3]) for name, shape in shapes.items()}
            self.mask_BS = torch.zeros(B, 0, dtype=torch.long)
        new_BT = torch.ones_like(tokens_BT) if lengths_B is None else real(tokens_BT, lengths_B)
        self.mask_BS = torch.cat([self.mask_BS, new_BT], 1)
        return self.keep(self.session(input_ids=tokens_BT, attention_mask=self.mask_BS, **self.past))

    def reorder(self, rows: Tensor, siblings: bool = False) -> None:
        self.past = {name: part[rows] for name, part in self.past.items()}
        self.mask_BS = self.mask_BS[rows]

    def rewind(self, lengths_B: Tensor) -> None:
        self.mask_BS = self.mask_BS * (self.mask_BS.cumsum(1) <= lengths_B[:, None])


class OnnxPairStep(OnnxStep):
    def __init__(self, first: Session, then: Session, mask_BS: Tensor, source_BSD: Tensor) -> None:
        super().__init__()
        self.first, self.then, self.mask_BS, self.source_BSD = first, then, mask_BS, source_BSD

    def __call__(self, tokens_BT: Tensor, lengths_B: Tensor | None = None) -> Tensor:
        given = {"encoder_attention_mask": self.mask_BS, "input_ids": tokens_BT}
        if not self.past:
            return self.keep(self.first(**given, encoder_hidden_states=self.source_BSD))
        return self.keep(self.then(**given, **self.past))

    def reorder(self, rows: Tensor, siblings: bool = False) -> None:
        self.past = {name: part[rows] for name, part in self.past.items()}
        self.mask_BS, self.source_BSD = self.mask_BS[rows], self.source_BSD[rows]

    def rewind(self, lengths_B: Tensor) -> None:
        """Cut all rows to one length: the graph counts slots, and does not know which are real."""
        if len(lengths_B.unique()) > 1:
            raise ValueError("rows of this graph cannot be cut to different lengths")
        self.past = {
            name: part[:, :, : int(lengths_B[0])] if ".decoder." in name else part
            for name, part in self.past.items()
        }
