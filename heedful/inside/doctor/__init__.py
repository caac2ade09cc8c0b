"""The doctor: checks that a model is sound, each with its number, what the number must be, and what to do if
it is not."""

from .examine import CHECKS, SEEDS, examine
from .finding import FAIL, OK, WARN, Finding, NotApplicable
from .patient import Patient

__all__ = ["CHECKS", "FAIL", "OK", "SEEDS", "WARN", "Finding", "NotApplicable", "Patient", "examine"]
