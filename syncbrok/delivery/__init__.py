"""Who gets what, when. The pure core decides; the dispatcher and the handlers carry it out."""
