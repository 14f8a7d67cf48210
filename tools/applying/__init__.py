"""Applications whose rows and jobs commit together, killed beside workers."""
