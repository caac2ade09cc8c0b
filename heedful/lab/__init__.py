"""The lab: claims of the lectures as experiments, each with a prediction, a rule and a verdict."""
