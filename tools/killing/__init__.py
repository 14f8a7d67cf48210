"""The parts of `tools/crash.py`: workers that die at random and at named points, and whoever kills them."""
