"""What guards the whole, and no room of it alone: a broker that is killed, whose disk fails or rots, whose clients take
all they can get; logs of older versions; and the project itself: its pages, examples, promises and habits."""
