"""The workloads, a module each: what a child does (`TASKS`) and how the parent has it done."""
