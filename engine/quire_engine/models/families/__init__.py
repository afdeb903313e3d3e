"""How the files of each family state its architecture: one small module a difference."""
