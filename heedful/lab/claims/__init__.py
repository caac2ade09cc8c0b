"""One file a claim, named by its letter and its name: e_offsets.py. The folder is the list of claims."""
