"""Images: read from files and folders, and made ready for a model."""
