"""Pictures in: drawn by the project, read from files, made ready for a model."""
