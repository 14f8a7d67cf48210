"""Run by Python itself at the start of every process that has this folder on its path: enter the world it is told."""

from __future__ import annotations

import os

import worlds

if worlds.VARIABLE in os.environ:
    worlds.enter(os.environ[worlds.VARIABLE])
