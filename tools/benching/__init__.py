"""The parts of `tools/bench.py`: subjects, workloads in child processes, and what is made of their figures."""
