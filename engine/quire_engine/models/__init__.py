"""Models: what their files say (`facts`, no torch), their weights, and how they compute."""
