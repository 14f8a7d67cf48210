"""The parts of `tools/iofaults.py`: the verbs, the state of a file, one fault point, and the room on a disk."""
