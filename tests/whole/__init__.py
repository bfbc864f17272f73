"""What guards the whole, and no room of it alone: a broker that is killed, whose disk fails or rots, whose clients take
all they can get; logs of older versions, each in a wing; and here the project itself: its pages, examples, promises and
habits."""
