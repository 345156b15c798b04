"""Output for people: tables on a terminal, figures, and the HTML report."""
