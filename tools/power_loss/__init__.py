"""The parts of `tools/powerloss.py`: the recorder, the work it records, the model of a disk, and the judgement."""
