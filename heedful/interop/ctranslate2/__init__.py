"""CTranslate2, in and out."""
