"""What `tools/make_reference.py` writes: the pages of docs/reference, from docstrings and from the command's help."""
