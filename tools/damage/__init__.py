"""Damage to queue files: files to damage, wounds, and everything that a program could then do with them."""
