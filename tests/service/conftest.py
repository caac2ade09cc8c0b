from helpers.serve_cases import served, stored  # noqa: F401 (one of each for all files of this folder)
