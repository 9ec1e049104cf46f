"""The thin helpers of the course: a notebook shows the mechanism, these do the rest."""
