"""The doctor: checks of a model, each with its value, the limit of the value, and a remedy."""

from .examine import CHECKS, SEEDS, examine
from .finding import FAIL, OK, WARN, Finding, NotApplicable
from .patient import Patient

__all__ = ["CHECKS", "FAIL", "OK", "SEEDS", "WARN", "Finding", "NotApplicable", "Patient", "examine"]
