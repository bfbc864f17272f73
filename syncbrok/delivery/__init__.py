"""Who gets what, when. The pure core decides; the courier and the handlers carry it out."""
