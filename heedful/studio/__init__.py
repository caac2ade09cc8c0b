"""The studio: look inside a model in the browser. The HTTP process imports no torch."""
