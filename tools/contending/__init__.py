"""The parts of `tools/contention.py`: processes that all want the same file at once, and what they were served."""
