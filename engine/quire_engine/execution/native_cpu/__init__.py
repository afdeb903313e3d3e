"""The executor of CPUs with a C++ compiler: a decoder's whole step in one call, weights packed."""
