"""Exit codes: what a script can rely on."""

from ...errors import LOST

DONE, FAILED, BAD_INPUT, NOT_FINITE, NO_CHECKPOINT, DISK_FULL = range(6)
DID_NOT_HOLD = NOT_FINITE  # a check failed: of an export, of formulas, of a claim
INTERRUPTED_AND_SAVED, INTERRUPTED, CLOSED_PIPE = 75, 130, 141

MEANINGS = {
    DONE: "done",
    FAILED: "failed",
    BAD_INPUT: "wrong usage or input",
    NOT_FINITE: "a check failed or a value was not finite",
    NO_CHECKPOINT: "no complete checkpoint",
    DISK_FULL: "disk full",
    LOST: "another process of the run is gone",
    INTERRUPTED_AND_SAVED: "interrupted and saved",
    INTERRUPTED: "interrupted",
    CLOSED_PIPE: "the reader of stdout is gone",
}
