"""What engine, gateway and operator say to each other. Free of torch and of any I/O."""
