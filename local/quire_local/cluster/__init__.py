"""A cluster as its users reach it: by a kubeconfig, with their own rights."""
