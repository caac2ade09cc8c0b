"""CTranslate2 folders, in and out."""
