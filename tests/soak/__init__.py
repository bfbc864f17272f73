"""``make soak``: what the tests try for seconds, tried for as long as asked, with a new seed each time.

One file for each kind of attack; ``--what`` chooses, and says what each does. Ends with 1 at the first broken promise,
and prints the seed that shows it again.
"""
