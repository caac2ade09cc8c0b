"""The same models, rewritten to be fast and proven equal. Imports parts and models, never the reverse."""
