"""Real workers under the harnesses: what they are given to do, and how every handle of theirs tells a journal."""
