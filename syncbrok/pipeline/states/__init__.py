"""How each delivery stands, from the facts alone: the one frame that a reader gets, and jobs go on from."""
