"""What a caller of the hand-off may have to handle."""


class StreamSyncError(RuntimeError):
    """The hand-off cannot be set up or used as asked; falling back to another mechanism is possible."""


class StreamStuckError(RuntimeError):
    """The stream stayed parked after the rescue: this device does not observe host stores.

    It cannot be unparked, so the caller must fail loudly and never fall back.
    """
