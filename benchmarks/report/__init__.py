"""How results are shown: a table in the terminal, a picture, and the tables of the pages that people read."""
