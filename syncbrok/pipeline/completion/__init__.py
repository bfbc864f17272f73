"""Works out when each delivery ended and each message became complete, from the facts alone."""
