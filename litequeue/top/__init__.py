"""What a person watches of queue files: figures of a moment, of several files at once.

Owns: which figures there are, how often those that cost much are asked for, and what becomes of a file that is out of
reach for a while. Leaves out: the drawing and the terminal (`cli.top`).
"""

from litequeue.top.figures import FileFigures, Kept, OutOfReach
from litequeue.top.watch import Watch

__all__ = ["FileFigures", "Kept", "OutOfReach", "Watch"]
