"""A lease of leadership that a test gives and takes."""


class HeldLease:
    """A ``LeaderLease`` of epoch 7."""

    def __init__(self) -> None:
        self.epoch = 7
        self.held = True
        self.looks = 0
        self.doubts = 0

    def holds(self) -> bool:
        self.looks += 1
        return self.held

    def doubt(self) -> None:
        self.doubts += 1
