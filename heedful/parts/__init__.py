"""The parts of the Transformer, one idea a file; torch is all they need."""
