"""A lease of leadership that a test gives and takes."""


class HeldLease:
    """A ``LeaderLease`` of epoch 7."""

    def __init__(self) -> None:
        self.epoch = 7
        self.lease_s = 2.0
        self.held = True
        self.lasts: int | None = None
        """it is over after so many further looks; None: it goes by ``held``"""
        self.looks = 0
        self.doubts = 0
        self.proved = False

    def holds(self) -> bool:
        self.looks += 1
        if self.lasts is not None:
            self.lasts -= 1
            return self.lasts >= 0
        return self.held

    def doubt(self, epoch: int) -> bool:
        self.doubts += 1
        return not self.proved
