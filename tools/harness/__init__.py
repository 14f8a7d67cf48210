"""What the fault harnesses share: how a run is asked for and reported, journals and their checker, disks that fail."""
